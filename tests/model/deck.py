"""Calls of every verb that changes something, with arguments drawn to meet what is there.

A Deck plays in one queue: it draws a call, makes it as a role, checks that a refusal is one of the
documented, and remembers what came of it: items, leases, decisions, keyed calls, first answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

import psycopg
from psycopg.types.json import Jsonb

from support.database import Database, Row, call

T = TypeVar("T")

DOCUMENTED = frozenset({
    "22004", "22023", "P0002", "42501", "42704", "42710", "55000",
    "VE001", "VE002", "VE003", "VE004", "VE101", "VE102", "VE103", "VE201", "VE202",
    "VE301", "VE302", "VE303", "VE304", "VE401", "VE501", "VE601",
})  # fmt: skip
FENCED_OUT = frozenset({"VE301", "VE304", "VE401"})
FENCED_OUT_CODES = frozenset({"stale_fence", "not_lease_holder", "idempotency_conflict"})

ROLES = (
    "t_producer", "t_worker", "t_worker2", "t_verifier", "t_operator", "t_human", "t_auditor",
    "t_nobody",
)  # fmt: skip
NAMES = tuple(f"n{n}" for n in range(30))
EVIDENCE: tuple[Any, ...] = (
    None, {"kind": "a"}, Jsonb([]), {"a": 1},
    Jsonb([{"kind": "a", "exit": 0}, {"kind": "b", "at": "2031-01-01T00:00Z"}]),
)  # fmt: skip
STEPS = (0.25, 1.0, 3.0, 31.0, 61.0, 1000.0, 90000.0)
DOCUMENTS: tuple[Any, ...] = (
    None, {}, {"a": 1}, {"a": None}, {"a": {"b": None, "c": [None, 1.0]}, "é": "x" * 20},
)  # fmt: skip

QUICK = {"ttl_floor": "1 s", "ttl": "30 s", "ttl_ceiling": "600 s", "max_age": "900 s",
         "backoff_base": "10 s", "backoff_jitter": 0, "payload_limit": 200}  # fmt: skip
GUARDED = {"protection": {
    "scope": "account", "retention": "120 s", "canonical_inputs": [], "conflict_behaviour": "same",
    "authority": "ledger", "after_retention": "reconcile",
}}  # fmt: skip
CLASSES: Mapping[str, Mapping[str, Any]] = {
    "default": {"preset": "job", "replay_class": "safe", "policy": {**QUICK, "attempts": 2}},
    "at once": {"preset": "imported", "replay_class": "safe",
                "policy": {**QUICK, "attempts": 5, "limit_per_key": 2}},
    "effects": {"preset": "effect", "replay_class": "reconcilable", "policy": QUICK},
    "review": {"preset": "agent_task", "replay_class": "safe", "policy": QUICK},
    "fragile": {"preset": "job", "replay_class": "non_repeatable",
                "policy": {**QUICK, "attempts": 1, "own_lane": True}},
    "unknown": {"preset": "job", "replay_class": "unknown", "policy": QUICK},
    "guarded": {"preset": "effect", "replay_class": "destination_protected",
                "policy": {**QUICK, **GUARDED, "pools": ["cloud"], "completion_test": "report"}},
    "measured": {"preset": "job", "replay_class": "safe", "policy": {
        **QUICK, "evidence": "required", "freshness": "60 s", "measure_window": "60 s",
        "dependencies": ["mail"], "item_limit": 6, "age_limit": "600 s", "coalesce": "absorb"}},
    "single": {"preset": "effect", "replay_class": "reconcilable", "policy": {
        **QUICK, "evidence": "limit", "evidence_limit": 2, "effect_unique": True,
        "coalesce": "replace", "byte_limit": 900, "budget_mode": "striped"}},
}  # fmt: skip
POOLS = ("local", "cloud", "spare")

# Values of another kind than meant; each is of the argument's type.
MALFORMED: Mapping[type, Sequence[Any]] = {
    str: (None, "", "a\x01b", "x" * 70000, "~", "infinity"),
    int: (None, -1, 0, 2**31 - 1),
    bool: (None,),
    dict: (None, "[]", "5", "null"),
    list: (None, [], [None]),
    datetime: (None, "infinity", "-infinity", "0044-03-15 BC", "294000-01-01"),
    timedelta: (None, "-1 s", "0 s", "100000 years"),
}
# An argument that makes another request of the same call.
OTHERWISE: Mapping[str, tuple[str, Any]] = {
    "eve_submit": ("trace", "another"),
    "eve_acquire": ("ttl", timedelta(seconds=77)),
    "eve_turn": ("ttl", timedelta(seconds=77)),
    "eve_renew": ("progress", {"an": "other"}),
    "eve_complete": ("evidence", {"kind": "other"}),
    "eve_complete_batch": ("all_or_nothing", True),
    "eve_fail": ("error", "another"),
    "eve_return": ("reason", "another"),
    "eve_start_effect": ("evidence", {"kind": "other"}),
    "eve_observe_effect": ("evidence", {"kind": "other"}),
    "eve_reconcile": ("scope", "another"),
    "eve_verify": ("evidence", {"kind": "other"}),
    "eve_compensate": ("evidence", {"kind": "other"}),
    "eve_cancel": ("reason", "another"),
    "eve_reject": ("reason", "another"),
    "eve_unpark": ("reason", "another"),
    "eve_halt": ("reason", "another"),
    "eve_resume": ("reason", "another"),
    "eve_pause": ("reason", "another"),
    "eve_unpause": ("reason", "another"),
    "eve_new_epoch": ("reason", "another"),
    "eve_propose": ("subject", {"an": "other"}),
    "eve_accept": ("answer", {"an": "other"}),
    "eve_decline": ("answer", {"an": "other"}),
    "eve_sweep": ("at_most", 77),
    "eve_settle_import": ("evidence", {"kind": "other"}),
}


@dataclass(frozen=True)
class Answer:
    """The rows of a call, or the SQLSTATE of its refusal."""

    rows: list[Row]
    refused: str | None = None


@dataclass(frozen=True)
class Lease:
    item: int
    token: int
    role: str


@dataclass(frozen=True)
class Kept:
    """A keyed call whose answer was kept."""

    role: str
    verb: str
    arguments: dict[str, Any]
    rows: list[Row]
    at: datetime


def documented(error: psycopg.Error, verb: str, arguments: dict[str, Any]) -> None:
    """The refusal is one of the contract's, with a hint; 42501 may be PostgreSQL's own."""
    assert error.sqlstate in DOCUMENTED, (verb, arguments, error.sqlstate, str(error))
    assert error.diag.message_hint or error.sqlstate == "42501", (verb, arguments, str(error))


class Draw:
    """Choices from one seed."""

    def __init__(self, rnd: Random) -> None:
        self.rnd = rnd

    def pick(self, values: Sequence[T]) -> T:
        return self.rnd.choice(values)

    def chance(self, percent: int) -> bool:
        return self.rnd.random() * 100 < percent

    def maybe(self, percent: int, value: T) -> T | None:
        return value if self.chance(percent) else None

    def some(self, values: Sequence[T], at_most: int) -> list[T]:
        return self.rnd.sample(values, self.number(0, min(at_most, len(values))))

    def number(self, low: int, high: int) -> int:
        return self.rnd.randint(low, high)


@dataclass
class Deck:
    """One queue, and what a caller may remember of it."""

    db: Database
    queue: str
    queue_id: int
    calls: int = 0
    log: list[str] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    decisions: dict[int, str] = field(default_factory=dict)  # and what was asked
    stopped: set[str] = field(default_factory=set)  # what people halted or paused
    kept: list[Kept] = field(default_factory=list)
    finished: dict[tuple[int, int], tuple[str, dict[str, Any], Row]] = field(default_factory=dict)
    other: Deck | None = None  # of another queue
    checkpoints: dict[int, Any] = field(default_factory=dict)
    states: dict[int, Row] = field(default_factory=dict)
    events: int = 0
    halted_as_of: str | None = None
    keys: int = 0

    # Calling

    def attempt(self, role: str, verb: str, /, **arguments: Any) -> Answer:
        """A call in a transaction of its own; fails on any error that is not documented."""
        self.calls += 1
        wrong: psycopg.Error
        try:
            rows = call(self.db.kept(role), verb, queue=self.queue, **arguments)
        except psycopg.Error as error:
            wrong = error
        else:
            self.log.append(f"{role} {verb} {arguments} answered {rows}")
            return Answer(rows)
        self.log.append(
            f"{role} {verb} {arguments} raised {wrong.sqlstate} {wrong.diag.message_primary}"
        )
        documented(wrong, verb, arguments)
        return Answer([], wrong.sqlstate)

    def call(self, role: str, verb: str, /, **arguments: Any) -> list[Row]:
        """A call that must not be refused."""
        answer = self.attempt(role, verb, **arguments)
        assert not answer.refused, (role, verb, arguments, answer.refused)
        return answer.rows

    def play(self, d: Draw) -> None:
        """One call with drawn arguments, some of them malformed, and what is learnt of it."""
        verb = self.verb(d)
        role, arguments = self.draw(d, verb)
        typed = tuple(name for name in arguments if name != "under")  # a record is no text
        if d.chance(6) and typed:
            name = d.pick(typed)
            arguments[name] = d.pick(MALFORMED.get(type(arguments[name]), (None,)))
        if d.chance(4):
            role = d.pick(ROLES)
        if d.chance(30) and verb != "eve_fence":
            self.keys += 1
            arguments["idempotency_key"] = f"k{self.keys}"
        answer = self.attempt(role, verb, **arguments)
        if not answer.refused:
            self.learn(role, verb, arguments, answer.rows)

    def verb(self, d: Draw) -> str:
        """Mostly one that has something to do."""
        phases = {state.phase for state in self.states.values()}
        stopped = {"eve_resume": "halt", "eve_unpause": "pause"}
        weights = [
            weight * (
                (1 if phases & NEEDS[verb] else 0.1) if verb in NEEDS
                else (1 if stopped[verb] in self.stopped else 0.1) if verb in stopped
                else 1
            )
            for verb, weight in VERBS.items()
        ]  # fmt: skip
        return d.rnd.choices(tuple(VERBS), weights)[0]

    def draw(self, d: Draw, verb: str) -> tuple[str, dict[str, Any]]:
        draws: Callable[[Draw], tuple[str, dict[str, Any]]] = getattr(self, f"_{verb[4:]}")
        role, arguments = draws(d)
        return role, {k: v for k, v in arguments.items() if v is not None}

    def learn(self, role: str, verb: str, arguments: dict[str, Any], rows: list[Row]) -> None:
        for row in rows:
            given = row._asdict()
            if verb in ("eve_submit", "eve_settle_import") and row.item:
                self.items.append(row.item)
            if given.get("granted") and not row.replayed:
                assert row.checkpoint == self.checkpoints.get(row.item), (verb, row)
                self.leases.append(Lease(row.item, row.token, role))
            if verb == "eve_propose":
                self.decisions[row.decision] = arguments["kind"]
            if verb in ("eve_halt", "eve_pause") and row.done:
                self.stopped.add(verb[4:])
            if verb in ("eve_resume", "eve_unpause"):
                self.stopped.discard({"eve_resume": "halt"}.get(verb, "pause"))
            if verb == "eve_halt":
                self.halted_as_of = row.detail["as_of"] or self.halted_as_of
            if arguments.get("checkpoint") is not None and not row.replayed:
                self.checkpoints[row.item] = arguments["checkpoint"]
        if verb in ("eve_complete", "eve_fail", "eve_return") and not rows[0].replayed:
            self.finished[arguments["item"], arguments["token"]] = (verb, arguments, rows[0])
        if verb in ("eve_complete_batch", "eve_turn"):
            tokens = dict(zip(arguments.get("items", ()), arguments.get("tokens", ()), strict=True))
            for row in rows:
                done = row._asdict()
                if done.get("accepted") and not row.replayed:
                    self.finished[row.item, tokens[row.item]] = (verb, {}, row)
        if "idempotency_key" in arguments and self._is_kept(verb, rows):
            self.kept.append(Kept(role, verb, arguments, rows, self.now()))

    def _is_kept(self, verb: str, rows: list[Row]) -> bool:
        if verb not in ("eve_acquire", "eve_turn"):
            return True
        return any(r.granted or r._asdict().get("accepted") is not None for r in rows)

    def now(self) -> datetime:
        return self.db.clock.now()

    # Drawing

    def item(self, d: Draw, *phases: str) -> int:
        """Mostly one in these phases."""
        fitting = [item for item, state in self.states.items() if state.phase in phases]
        if fitting and d.chance(80):
            return d.pick(fitting)
        if self.other and self.other.items and d.chance(6):
            return d.pick(self.other.items)
        return d.pick(self.items) if self.items and d.chance(97) else d.number(0, 10**6)

    def live(self) -> list[Lease]:
        """Leases that the ledger has not seen end."""
        return [x for x in self.leases if (s := self.states.get(x.item)) and s.phase == "leased"
                and s.token == x.token]  # fmt: skip

    def lease(self, d: Draw) -> Lease:
        """Mostly a live one."""
        if not self.leases:
            return Lease(self.item(d), 1, "t_worker")
        live = self.live()
        if self.other and self.other.leases and d.chance(3):
            return d.pick(self.other.leases)
        found = d.pick(live if live and d.chance(85) else self.leases)
        return found if d.chance(97) else Lease(found.item, found.token + 1, found.role)

    def _holder(self, d: Draw) -> tuple[str, dict[str, Any]]:
        lease = self.lease(d)
        return lease.role, {"item": lease.item, "token": lease.token}

    def _instant(self, d: Draw, percent: int) -> datetime | None:
        seconds = d.pick((-10, 1, 5, 40, 2000, 10**6))
        return d.maybe(percent, self.now() + timedelta(seconds=seconds))

    def _submit(self, d: Draw) -> tuple[str, dict[str, Any]]:
        role, under = "t_producer", None
        if d.chance(10) and self.leases:
            lease = self.lease(d)
            role, under = lease.role, f"({lease.item},{lease.token})"
        return role, {
            "payload": {"x": "y" * d.pick((1, 1, 1, 150, 400))},
            "class": d.pick(tuple(CLASSES)) if d.chance(70) else None,
            "work_id": d.maybe(70, d.pick(NAMES)),
            "after": d.some(NAMES, 3) if d.chance(35) else None,
            "after_ended": d.some(NAMES, 2) if d.chance(10) else None,
            "priority_class": d.maybe(40, d.number(0, 3)),
            "not_before": self._instant(d, 12),
            "deadline": self._instant(d, 15),
            "minimum_completion_margin": d.maybe(5, timedelta(seconds=d.pick((0, 2, 10**6)))),
            "value_until": self._instant(d, 6),
            "coalescing_key": d.maybe(50, d.pick(("k1", "k2"))),
            "effect_identity": d.maybe(15, d.pick(("e1", "e2"))),
            "limit_key": d.maybe(50, d.pick(("l1", "l1", "l2"))),
            "cancellation_identity": d.maybe(15, d.pick(("c1", "c2"))),
            "replay_class": d.maybe(12, d.pick(
                ("safe", "destination_protected", "reconcilable", "non_repeatable", "unknown"))),
            "completion_test": d.maybe(10, d.pick(("report", "effects", "review"))),
            "expected_effects": d.maybe(10, ["e1", "e2"]),
            "decision": self._decision(d) if self.decisions and d.chance(12) else None,
            "under": under,
            "must_admit": d.maybe(10, value=True),
        }  # fmt: skip

    def _wanted(self, d: Draw) -> dict[str, Any]:
        return {
            "worker": d.pick(("w1", "w2")),
            "classes": d.some(tuple(CLASSES), 3) or None if d.chance(15) else None,
            "pool": d.maybe(25, d.pick(POOLS)),
            "ttl": d.maybe(20, timedelta(seconds=d.pick((0.5, 1, 10, 600, 700, 10**6)))),
            "max_items": d.maybe(25, d.number(1, 4)),
        }

    def _acquire(self, d: Draw) -> tuple[str, dict[str, Any]]:
        arguments = self._wanted(d)
        if d.chance(25):
            arguments |= {"item": self.item(d, "ready", "held"), "max_items": None}
        return d.pick(("t_worker", "t_worker", "t_worker2")), arguments

    def _batch(self, d: Draw) -> tuple[str, dict[str, Any]]:
        first = self.lease(d)
        mine = [x for x in (*self.live(), *self.leases[-3:]) if x.role == first.role] or [first]
        chosen = list({x.item: x for x in d.some(mine, 3)}.values())
        results = [Jsonb(d.pick(DOCUMENTS[1:])) for _ in chosen]
        return first.role, {
            "items": [x.item for x in chosen],
            "tokens": [x.token for x in chosen],
            "results": results if chosen and d.chance(40) else None,
            "all_or_nothing": d.maybe(15, value=True),
        }

    def _complete_batch(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return self._batch(d)

    def _turn(self, d: Draw) -> tuple[str, dict[str, Any]]:
        role, arguments = self._batch(d)
        return role, arguments | self._wanted(d)

    def _complete(self, d: Draw) -> tuple[str, dict[str, Any]]:
        role, arguments = self._holder(d)
        return role, arguments | {"result": d.pick(DOCUMENTS), "evidence": d.pick(EVIDENCE)}

    def _renew(self, d: Draw) -> tuple[str, dict[str, Any]]:
        role, arguments = self._holder(d)
        ttl = d.maybe(40, timedelta(seconds=d.pick((0, 1, 10, 500, 899, 901, 10**8))))
        return role, arguments | {
            "ttl": ttl, "progress": d.pick(DOCUMENTS), "checkpoint": d.pick(DOCUMENTS),
            "spend": d.maybe(30, d.pick((0, 1, 7))),
        }  # fmt: skip

    def _fail(self, d: Draw) -> tuple[str, dict[str, Any]]:
        role, arguments = self._holder(d)
        return role, arguments | {
            "error": d.maybe(50, d.pick(("boom", "é" * 600))),
            "disposition": d.maybe(60, d.pick(("retry", "uncertain", "dead"))),
            "detail": d.pick(DOCUMENTS),
        }

    def _return(self, d: Draw) -> tuple[str, dict[str, Any]]:
        role, arguments = self._holder(d)
        return role, arguments | {
            "until": self._instant(d, 30),
            "decision": self._decision(d) if self.decisions and d.chance(30) else None,
            "after": d.some(NAMES, 2) if d.chance(25) else None,
            "reconcile": d.maybe(10, value=True),
            "checkpoint": d.pick(DOCUMENTS),
        }

    def _fence(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return self._holder(d)

    def _start_effect(self, d: Draw) -> tuple[str, dict[str, Any]]:
        role, arguments = self._holder(d)
        return role, arguments | {
            "effect_identity": d.maybe(40, d.pick(("e1", "e2"))), "evidence": d.pick(EVIDENCE),
        }  # fmt: skip

    def _observe_effect(self, d: Draw) -> tuple[str, dict[str, Any]]:
        about = {
            "effect_identity": d.maybe(50, d.pick(("e1", "e2"))), "evidence": d.pick(EVIDENCE),
            "observed_at": self._instant(d, 10),
        }  # fmt: skip
        if d.chance(60):
            role, arguments = self._holder(d)
            return role, arguments | about
        return "t_verifier", {"item": self.item(d, "reported", "uncertain")} | about

    def _reconcile(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return d.pick(("t_verifier", "t_human")), {
            "item": self.item(d, "uncertain", "reported"),
            "finding": d.pick(("absent", "observed", "unavailable")),
            "evidence": d.pick(EVIDENCE),
        }

    def _verify(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_verifier", {"item": self.item(d, "completed"), "evidence": d.pick(EVIDENCE)}

    def _compensate(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_verifier", {
            "item": self.item(d, "completed", "verified"),
            "effect_identity": "e1",
            "evidence": {"kind": "a"},
        }

    def _cancel(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return d.pick(("t_producer", "t_operator", "t_human")), d.pick(
            (
                {"item": self.item(d)},
                {"work_id": d.pick(NAMES)},
                {"cancellation_identity": d.pick(("c1", "c2", *NAMES[:3]))},
            )
        )

    def _reject(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_human", {"item": self.item(d, "held", "quarantined", "leased"), "reason": "no"}

    def _unpark(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_human", {
            "item": self.item(d, "quarantined"),
            "extra_attempts": d.maybe(40, d.number(0, 3)),
        }

    def _reprioritise(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_operator", {
            "item": self.item(d, "ready", "held"),
            "priority_class": d.number(0, 3),
        }

    def _halt(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_operator", {"as_of": self.halted_as_of if d.chance(60) else None}

    def _resume(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return d.pick(("t_human", "t_human", "t_operator")), {}

    def _pause(self, d: Draw) -> tuple[str, dict[str, Any]]:
        place: dict[str, Any] = {"class": d.pick(tuple(CLASSES))}
        return "t_operator", place if d.chance(70) else {"pool": d.pick(POOLS)}

    def _unpause(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return self._pause(d)

    def _propose(self, d: Draw) -> tuple[str, dict[str, Any]]:
        kind = d.pick(("waiver", "waiver", "approval", "spend", "import", "policy"))
        arguments: dict[str, Any] = {"kind": kind, "expires_at": self._instant(d, 10)}
        if kind == "spend":
            arguments |= {"pool": d.pick(POOLS), "slots": d.number(0, 4)}
        elif kind == "waiver":
            arguments |= {"item": self.item(d, "held"), "work_id": d.pick(NAMES)}
        elif kind == "approval" and d.chance(70):
            role, held = self._holder(d)
            return role, arguments | held | {"digest": "0" * 64}
        elif kind != "approval" and d.chance(50):
            arguments["item"] = self.item(d)
        return d.pick(("t_worker", "t_operator", "t_human")), arguments

    def _decision(self, d: Draw, *kinds: str) -> int:
        """Mostly one of this kind, mostly a new one."""
        fitting = [n for n, kind in self.decisions.items() if kind in kinds or not kinds]
        return d.pick((fitting or [1])[-4:])

    def _accept(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_human", {"decision": self._decision(d), "answer": d.pick(DOCUMENTS)}

    def _decline(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_human", {"decision": self._decision(d), "answer": d.pick(DOCUMENTS)}

    def _approve_slots(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_human", {"pool": d.pick(POOLS), "slots": d.number(0, 4),
                           "default_pool": d.chance(50)}  # fmt: skip

    def _new_epoch(self, _: Draw) -> tuple[str, dict[str, Any]]:
        return "t_operator", {}

    def _define_class(self, d: Draw) -> tuple[str, dict[str, Any]]:
        name = d.pick(tuple(CLASSES))
        said = CLASSES[name]
        policy = dict(said["policy"])
        if d.chance(50):
            policy["attempts"] = d.number(1, 4)
        if d.chance(30):
            policy["payload_limit"] = d.pick((0, 100, 500))
        if d.chance(20):
            policy["ttl"] = d.pick(("1 s", "30 s", "601 s"))
        if d.chance(20):
            policy["effect_starts"] = d.chance(50)
        if d.chance(10):
            policy["cancel_boundary"] = d.pick(("immediate", "effect_start"))
        if d.chance(10):
            policy["pools"] = [d.pick(POOLS)]
        if d.chance(25):
            policy["limit_per_key"] = d.number(1, 4)
        replay_class = said["replay_class"]
        if d.chance(30):
            replay_class = d.pick(("safe", "reconcilable", "unknown"))
        return "t_operator", {
            "class": name, "preset": said["preset"], "replay_class": replay_class, "policy": policy,
        }  # fmt: skip

    def _define_pool(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_operator", {"pool": d.pick(POOLS)}

    def _grant_access(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_operator", {"role": d.pick(("t_nobody", "eve_human")), "capability": "auditor"}

    def _revoke_access(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return self._grant_access(d)

    def _sweep(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return d.pick(("t_operator", "t_worker")), {"at_most": d.maybe(20, d.number(1, 3))}

    def _measure(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_operator", {"class": d.maybe(50, d.pick(tuple(CLASSES)))}

    def _set_health(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_operator", {
            "dependency": d.pick(("mail", "mail", "store")),
            "health": d.pick(("healthy", "healthy", "saturated", "unhealthy")),
            "capacity": d.maybe(30, d.number(0, 2)),
            "valid_for": d.maybe(50, timedelta(seconds=d.pick((5, 100, 10**5)))),
        }

    def _recheck(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_operator", {"item": d.maybe(50, self.item(d, "held"))}

    def _recover(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return d.pick(("t_operator", "t_worker")), {}

    def _settle_import(self, d: Draw) -> tuple[str, dict[str, Any]]:
        return "t_verifier", {
            "decision": self._decision(d, "import"), "work_id": d.pick(NAMES),
            "phase": d.maybe(30, "cancelled"),
        }  # fmt: skip


VERBS: Mapping[str, float] = {  # how often each is called
    "eve_submit": 14, "eve_acquire": 12, "eve_turn": 5, "eve_renew": 3, "eve_complete": 5,
    "eve_complete_batch": 3, "eve_fail": 5, "eve_return": 5, "eve_fence": 1, "eve_start_effect": 5,
    "eve_observe_effect": 4, "eve_reconcile": 5, "eve_verify": 4, "eve_compensate": 1,
    "eve_cancel": 3, "eve_reject": 1, "eve_unpark": 4, "eve_reprioritise": 2, "eve_halt": 1,
    "eve_resume": 20, "eve_pause": 1, "eve_unpause": 12, "eve_propose": 4, "eve_accept": 4,
    "eve_decline": 1, "eve_approve_slots": 2, "eve_new_epoch": 0.7, "eve_define_class": 2,
    "eve_define_pool": 0.5, "eve_grant_access": 0.5, "eve_revoke_access": 0.5, "eve_sweep": 3,
    "eve_recover": 1, "eve_settle_import": 2, "eve_measure": 2, "eve_set_health": 2,
    "eve_recheck": 1,
}  # fmt: skip
NEEDS: Mapping[str, frozenset[str]] = {  # a phase that the verb is for
    **dict.fromkeys((
        "eve_renew", "eve_complete", "eve_complete_batch", "eve_fail", "eve_return", "eve_fence",
        "eve_start_effect",
    ), frozenset({"leased"})),
    "eve_observe_effect": frozenset({"leased", "reported", "uncertain"}),
    "eve_reconcile": frozenset({"uncertain", "reported"}),
    "eve_verify": frozenset({"completed"}),
    "eve_compensate": frozenset({"completed", "verified"}),
    "eve_unpark": frozenset({"quarantined"}),
}  # fmt: skip
