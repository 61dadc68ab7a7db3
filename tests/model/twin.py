"""The step, written a second time: from section 3 of the contract, not from the SQL.

`step(state, event)` gives the next state or raises Illegal; `fold(state, event)` is what the ledger
does with an event, which never lies before the item's last one. None is an item without events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

BIRTH = "-"  # no event yet
QUEUE = "0"  # item 0: it has no phase
STAYS = "="

ENDED = "rejected expired cancelled coalesced dead"
ALIVE = "held ready leased uncertain reported completed quarantined"


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# kind, phases it may come from, phases it may go to. Several targets: the event says which.
TABLE: tuple[tuple[str, str, str], ...] = (
    ("admitted", BIRTH, "ready"),
    ("held", f"{BIRTH} ready held", "held"),
    ("coalesced", f"{BIRTH} ready held", "coalesced"),
    ("imported", BIRTH, "verified cancelled"),
    ("released", "held", "ready"),
    ("acquired", "ready", "leased"),
    ("renewed", "leased", STAYS),
    ("effect_started", "leased", STAYS),
    ("effect_observed", "leased uncertain reported", STAYS),
    ("reported", "leased", "reported"),
    ("completed", "leased reported uncertain", "completed verified"),
    ("verified", "completed", "verified"),
    ("failed", "leased", "held quarantined uncertain"),
    ("returned", "leased", "ready held uncertain"),
    ("lease_expired", "leased", "ready held quarantined uncertain"),
    ("lease_missing", "leased", "ready held quarantined uncertain"),
    # A row of an older token may go while the lease under the present one stands.
    ("lease_superseded", "leased", "ready held quarantined uncertain leased"),
    ("parked", "ready held", "quarantined"),
    ("reconciled", "uncertain reported",
     "completed verified ready held quarantined uncertain"),
    ("cancel_requested", "leased uncertain reported", STAYS),
    ("cancelled", "held ready leased", "cancelled"),
    ("expired", "held ready leased", "expired uncertain"),
    ("expired", "reported", "uncertain"),
    ("rejected", ALIVE, "rejected"),
    ("unparked", "quarantined", "ready held uncertain"),
    ("reprioritised", "ready held", STAYS),
    ("absorbed", "ready held", STAYS),
    ("compensated", "completed verified", STAYS),
    ("dead", "quarantined", "dead"),
    ("purged", f"{ENDED} verified", STAYS),
    ("queue_created", BIRTH, STAYS),
    *((kind, QUEUE, STAYS) for kind in (
        "class_defined", "pool_defined", "access_granted", "access_revoked",
        "decision_proposed", "decision_accepted", "decision_declined", "decision_consumed",
        "halted", "resumed", "paused", "unpaused", "epoch_started", "clock_stepped",
        "schedule_defined", "schedule_dropped", "sealed", "archived",
    )),
)  # fmt: skip

KINDS = tuple(dict.fromkeys(kind for kind, _, _ in TABLE))
OF_THE_QUEUE = frozenset(k for k, sources, _ in TABLE if sources == QUEUE) | {"queue_created"}
BIRTHS = frozenset(k for k, sources, _ in TABLE if BIRTH in sources.split()) - OF_THE_QUEUE

# Written by the holder under its token, or by a recovery under the lease it observed.
FENCED = words(
    "renewed effect_started effect_observed reported completed failed returned"
    " lease_expired lease_missing"
)
# Who holds the item is thrown out: the token moves on, nobody holds the new one.
EVICTING = words("cancelled expired rejected")
SAYING_WHY = words(
    "held released failed returned lease_expired lease_missing lease_superseded reconciled parked"
    " unparked cancelled expired rejected coalesced dead"
)
# Back in the order at the place it had: below what became ready since.
BACK_AT_ITS_PLACE = words("returned lease_expired lease_missing lease_superseded reconciled")

EPOCH = 2**32
TOKEN_END = 2**53


class Illegal(Exception):
    """The contract does not allow this event in this state."""


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    at: datetime
    phase: str | None = None
    principal: str | None = None
    worker: str | None = None
    epoch: int | None = 0
    revision: int | None = None
    token: int | None = None
    pool: str | None = None
    slot: int | None = None
    due_at: datetime | None = None
    rank: int | None = None
    attempts: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    version: int
    at: datetime
    phase: str | None = None
    attempts: int | None = None
    allowance: int | None = None
    credits: int | None = None
    token: int | None = None
    principal: str | None = None
    worker: str | None = None
    pool: str | None = None
    slot: int | None = None
    acquired_at: datetime | None = None
    expires_at: datetime | None = None
    ready_since: datetime | None = None
    late: bool | None = None
    rank: int | None = None
    revision: int | None = None
    effect_started: bool | None = None
    cancel_requested: bool | None = None
    reason: str | None = None


def step(state: State | None, event: Event) -> State:
    source = BIRTH if state is None else state.phase or QUEUE
    target = _target(event, source)
    if state is None:
        state = _born(event)
    _judge(state, event, source, target)
    after = replace(
        state,
        version=state.version + 1,
        at=event.at,
        phase=target,
        reason=event.reason if event.kind in SAYING_WHY else state.reason,
    )
    after = _place(state, after, event, source)
    after = _count(after, event, source)
    if event.kind == "acquired":
        after = replace(
            after,
            principal=event.principal, worker=event.worker, pool=event.pool, slot=event.slot,
            acquired_at=event.at, expires_at=event.due_at, reason=None,
        )  # fmt: skip
    elif source == "leased" and target != "leased":
        after = replace(after, principal=None, worker=None, pool=None, slot=None,
                        acquired_at=None, expires_at=None)  # fmt: skip
    match event.kind:
        case "renewed":
            after = replace(after, expires_at=event.due_at)
        case "effect_started":
            after = replace(after, effect_started=True)
        case "cancel_requested":
            after = replace(after, cancel_requested=True)
        case "reprioritised":
            after = replace(after, rank=event.rank)
        case "reconciled" if target in ("ready", "held", "quarantined"):
            after = replace(after, effect_started=False)  # it was found absent
    return after


def fold(state: State | None, event: Event) -> State:
    """What the ledger makes of an event: an item's time never runs backwards."""
    if state is not None and event.at < state.at:
        event = replace(event, at=state.at)
    return step(state, event)


def attempt(
    by: Callable[[State | None, Event], State], state: State | None, event: Event
) -> State | None:
    """The next state, or None where it is illegal."""
    try:
        return by(state, event)
    except Illegal:
        return None


def _target(event: Event, source: str) -> str | None:
    found = [t for kind, sources, t in TABLE if kind == event.kind and source in sources.split()]
    if not found:
        raise Illegal(f"{event.kind} in {source}")
    (targets,) = found
    if targets == STAYS:
        return None if source in (BIRTH, QUEUE) else source
    choice = targets.split()
    if len(choice) == 1 and event.kind != "expired":
        return choice[0]
    if event.phase not in choice:
        raise Illegal(f"{event.kind} to {event.phase}")
    return event.phase


def _born(event: Event) -> State:
    if event.kind == "queue_created":
        return State(version=0, at=event.at)
    if event.rank not in range(4):
        raise Illegal("a rank is 0 to 3")
    return State(
        version=0, at=event.at, attempts=0, allowance=0, credits=0, token=0,
        rank=event.rank, revision=event.revision, effect_started=False, cancel_requested=False,
    )  # fmt: skip


def _judge(state: State, event: Event, source: str, target: str | None) -> None:
    if event.kind in FENCED and source == "leased" and event.token != state.token:
        raise Illegal("another token")
    match event.kind:
        case "acquired":
            if None in (event.principal, event.worker, event.pool, event.slot):
                raise Illegal("a lease without a holder, a worker, a pool or a slot")
            if event.due_at is None or event.due_at <= event.at:
                raise Illegal("a lease that never lives")
        case "renewed":
            assert state.expires_at is not None
            if event.due_at is None or event.due_at < state.expires_at:
                raise Illegal("a renewal never shortens")
        case "returned":
            if event.attempts not in (None, 0, 1):
                raise Illegal("a return credits one attempt at most")
        case "unparked":
            if event.attempts is None or event.attempts < 0:
                raise Illegal("an unpark never lowers the budget")
        case "reprioritised":
            if event.rank not in range(4):
                raise Illegal("a rank is 0 to 3")
        case "expired":
            if target == "uncertain" and source != "reported" and not state.effect_started:
                raise Illegal("uncertain only where an effect started")


def _place(state: State, after: State, event: Event, source: str) -> State:
    match event.kind:
        case "unparked":
            return replace(after, ready_since=event.at, late=False)
        case "admitted" | "released":
            since = event.due_at or event.at
            return replace(after, ready_since=since, late=since < event.at)
        case "reprioritised" if source == "ready" and event.rank != state.rank:
            return replace(after, late=True)
    return replace(after, late=True) if event.kind in BACK_AT_ITS_PLACE else after


def _count(after: State, event: Event, source: str) -> State:
    evicts = event.kind in EVICTING and source in ("leased", "reported")
    if event.kind == "rejected" and source == "reported":
        evicts = False  # its lease had ended
    if event.kind == "acquired" or evicts:
        assert after.token is not None
        minted = max(after.token, (event.epoch or 0) * EPOCH) + 1
        if minted >= TOKEN_END:
            raise Illegal("no token is left")
        after = replace(after, token=minted)
    if event.kind == "acquired":
        return replace(after, attempts=(after.attempts or 0) + 1)
    if event.kind == "returned":
        return replace(after, credits=(after.credits or 0) + (event.attempts or 0))
    if event.kind == "unparked":
        return replace(after, allowance=(after.allowance or 0) + (event.attempts or 0))
    return after
