"""Events and histories at random: mostly legal by the twin, with attempts at illegal ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from model.twin import (
    BIRTHS,
    FENCED,
    KINDS,
    OF_THE_QUEUE,
    TABLE,
    Event,
    State,
    attempt,
    fold,
    words,
)

START = datetime(2024, 6, 1, 12, tzinfo=UTC)
SLOTS = 8
PHASES = tuple(dict.fromkeys(
    phase for kind, sources, targets in TABLE if kind not in OF_THE_QUEUE
    for phase in f"{sources} {targets}".split() if phase not in "-="
))  # fmt: skip
TARGETS: dict[str, list[str]] = {}  # a kind may have several rows
for _kind, _, _targets in TABLE:
    TARGETS.setdefault(_kind, []).extend(_targets.split())
ENDING = words("verified rejected expired cancelled coalesced dead imported purged")

WORDS = ("w", "worker 1", "zoé", "漢字", "a\\b", 'say "no"', "x" * 300, "\U0001f41d")
VALUES: tuple[Any, ...] = (
    0, -1, 1.0, 1e300, 10**30, True, None, "", "é", "\\u0000 as text", [], {}, [None, {"a": None}],
)  # fmt: skip
HOLDS = (
    ("not_before", "time"), ("retry_backoff", "time"), ("awaiting_decision", "decision"),
    ("dependency_not_ready", "dependency"), ("unknown_dependency", "dependency"),
    ("replay_class_unknown", "policy"), ("payload_invalid", "policy"),
    ("capacity_evidence_stale", "observation"), ("effect_already_live", "effect"),
    ("key_saturated", "key"),
)  # fmt: skip


def any_event(rnd: Random, state: State | None, kind: str, at: datetime = START) -> Event:
    """An event of that kind, most of it fitting the state, some of it not."""

    def mostly(value: Any, *others: Any) -> Any:
        return value if rnd.random() < 0.93 else rnd.choice((value, *others))

    token = state.token if state else None
    leased_until = state.expires_at if state and state.expires_at else at
    due_at = None
    if kind in ("acquired", "renewed"):
        later = max(at, leased_until) + timedelta(seconds=rnd.randrange(1, 99))
        due_at = mostly(later, at, leased_until, at - timedelta(seconds=1), None)
    elif kind == "released":
        due_at = rnd.choice((None, at, at - timedelta(microseconds=rnd.randrange(10**8))))
    if kind in FENCED and token:
        token = mostly(token, 1, 2, 2**32 + 1, (token or 0) + 1, None)
    elif kind == "lease_superseded":
        token = rnd.choice((1, 2, 3))
    else:
        token = None
    credit = {"returned": (None, 0, 1, 2, -1), "unparked": (1, 2, 0, None, -1)}.get(kind, (None,))
    return Event(
        kind=kind,
        at=at,
        phase=mostly(rnd.choice(TARGETS.get(kind, ["="])), *PHASES, "paid", None),
        principal=mostly("alice", "bob"),
        worker=mostly(rnd.choice(WORDS), None) if kind == "acquired" else rnd.choice((None, "w")),
        epoch=mostly(0, 1, 2, 2**21 - 1),
        revision=rnd.choice((None, 1, 2)),
        token=token,
        pool=mostly("wide", None) if kind == "acquired" else None,
        slot=mostly(1, None) if kind == "acquired" else None,
        due_at=due_at,
        rank=mostly(rnd.randrange(4), 4, -1, None)
        if (kind in BIRTHS and state is None) or kind == "reprioritised"
        else None,
        attempts=mostly(credit[0], *credit),
        reason=rnd.choice((None, *WORDS)),
    )


@dataclass(frozen=True)
class Op:
    """One event to append, and what must come of it: a state, or None for a refusal.

    A fact of the queue under an item, or of an item under item 0, is refused by the step, at birth
    by the table.
    """

    item: int
    event: Event
    data: Any
    expected: State | None
    actor: str = "postgres"

    @property
    def misplaced(self) -> bool:
        return (self.item == 0) != (self.event.kind in OF_THE_QUEUE)


@dataclass
class Walk:
    """One queue and its items, walked through at random; `states` is where the twin stands."""

    rnd: Random
    items: int
    ops: list[Op] = field(default_factory=list)
    states: dict[int, State] = field(default_factory=dict)
    now: datetime = START
    epoch: int = 0
    authorised: int = SLOTS
    revisions: dict[str, int] = field(default_factory=dict)
    decisions: int = 0

    def run(self, length: int) -> Walk:
        for kind, data in self._opening():
            self._queue(kind, data)
        for _ in range(length):
            self._pass_time()
            if self.rnd.random() < 0.15:
                kind = self._of_the_queue()
                self._queue(kind, self._queue_data(kind))
            else:
                self._item(self.rnd.randrange(1, self.items + 1))
        for item in range(1, self.items + 1):
            if item not in self.states:
                admitted = Event("admitted", self.now, principal="alice", epoch=self.epoch, rank=2)
                self._append(item, admitted, {"digest": DIGEST}, fold(None, admitted))
        return self

    def _pass_time(self) -> None:
        us = self.rnd.choice((0, 0, 1, 10**3, 10**6, 5 * 10**6, 60 * 10**6, -3 * 10**6))
        self.now += timedelta(microseconds=us)

    # Items

    def _item(self, item: int) -> None:
        rnd = self.rnd
        state = self.states.get(item)
        kind = rnd.choice(KINDS if rnd.random() < 0.12 else self._open_to(state))
        if kind in ENDING and rnd.random() < 0.7:
            return
        if kind == "acquired" and self._leases() >= self.authorised:
            return
        event = any_event(rnd, state, kind, self.now)
        if rnd.random() < 0.9:
            event = replace(event, epoch=self.epoch)
        after = attempt(fold, state, event)
        data = self._data(state, after)
        waited = state is not None and state.phase == "held"
        if after and after.phase == "held" and not waited and "holds" not in (data or {}):
            after = None  # who begins to wait says for what
        self._append(item, event, data, after)

    def _leases(self) -> int:
        return sum(state.phase == "leased" for state in self.states.values())

    def _open_to(self, state: State | None) -> tuple[str, ...]:
        source = state.phase if state else "-"
        return tuple(k for k, sources, _ in TABLE
                     if source in sources.split() and k not in OF_THE_QUEUE)  # fmt: skip

    def _data(self, state: State | None, after: State | None) -> dict[str, Any] | None:
        rnd = self.rnd
        data: dict[str, Any] = {}
        if state is None:
            data["digest"] = DIGEST
        if rnd.random() < 0.3:
            data["evidence"] = rnd.choice(VALUES)
        if after and after.phase == "held" and rnd.random() < 0.9:
            data["holds"] = [
                {
                    "reason": reason, "trigger": trigger, "owner": rnd.choice(("queue", "human")),
                    **({"ref": str(rnd.randrange(3))} if rnd.random() < 0.5 else {}),
                    **({"due_at": (self.now + timedelta(seconds=rnd.randrange(99))).isoformat()}
                       if trigger == "time" else {}),
                    **({"place": self.now.isoformat()} if trigger == "key" else {}),
                }
                for reason, trigger in rnd.sample(HOLDS, rnd.randrange(1, 4))
            ]  # fmt: skip
        return data or None

    # Item 0

    def _opening(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "queue_created", {"name": "", "durability": "any", "request_retention": "30 days"}
        for capability in ("operator", "auditor"):
            yield "access_granted", {"role": "postgres", "capability": capability}
        for name in ("a", "b"):
            yield "class_defined", self._class(name)
        yield "pool_defined", {"pool": "wide"}
        yield "decision_proposed", self._proposal()
        yield "decision_accepted", {"decision": 1, "pool": "wide", "slots": SLOTS}

    def _of_the_queue(self) -> str:
        return self.rnd.choice(KINDS if self.rnd.random() < 0.1 else tuple(sorted(OF_THE_QUEUE)))

    def _queue(self, kind: str, data: Any) -> None:
        state = self.states.get(0)
        if kind == "epoch_started":
            self.epoch += 1
        event = Event(kind, self.now, principal="postgres", epoch=self.epoch,
                      rank=1 if kind in BIRTHS else None,
                      reason=self.rnd.choice((None, *WORDS)))  # fmt: skip
        after = attempt(fold, state, event)
        self._append(0, event, data, after)

    def _class(self, name: str) -> dict[str, Any]:
        revision = self.revisions[name] = self.revisions.get(name, 0) + 1
        return {
            "class": name, "class_id": 1 + list(self.revisions).index(name), "revision": revision,
            "lane": 1 + list(self.revisions).index(name), "preset": "job", "document": {},
            "digest": DIGEST, "answers": {},
            "policy": {"ttl_floor": "1 s", "ttl_ceiling": "1 day", "replay_class": "safe"},
        }  # fmt: skip

    def _proposal(self) -> dict[str, Any]:
        self.decisions += 1
        return {"decision": self.decisions, "kind": "spend", "subject": {}}

    def _queue_data(self, kind: str) -> Any:
        rnd = self.rnd
        match kind:
            case "class_defined":
                return self._class(rnd.choice("ab"))
            case "pool_defined":
                return {"pool": f"pool {len(self.ops)}"}
            case "access_granted" | "access_revoked":
                return {"role": rnd.choice(("eve_human", "alice")), "capability": "human"}
            case "decision_proposed":
                return self._proposal()
            case "decision_accepted" if rnd.random() < 0.6:
                self.authorised = rnd.randrange(SLOTS + 1)
                return {"decision": rnd.randrange(1, self.decisions + 1), "pool": "wide",
                        "slots": self.authorised, "default_pool": True}  # fmt: skip
            case "decision_accepted" | "decision_declined" | "decision_consumed":
                return {"decision": rnd.randrange(1, self.decisions + 1), "answer": {"why": None}}
            case "paused" | "unpaused":
                return rnd.choice(({"class": "a"}, {"pool": "wide"}))
        return rnd.choice((None, {"x": rnd.choice(VALUES)}))

    def _append(self, item: int, event: Event, data: Any, after: State | None) -> None:
        op = Op(item, event, data, after)
        if op.misplaced:
            op = replace(op, expected=None)
        self.ops.append(op)
        if op.expected is not None and after is not None:
            self.states[item] = after


DIGEST = "00" * 32
