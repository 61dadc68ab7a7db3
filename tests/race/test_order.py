"""The order of picks is the brute-force sort, by the aging rule, of what no transaction holds.

Hypothesis makes backlogs, clocks and transactions; before each pick the ready items are read as
superuser and sorted in Python. Everything happens in one thread: a pick never waits.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from support.database import Connection, Database, Row, call
from support.race import scaled

US = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
STEPS = [timedelta(), timedelta(), US, timedelta(seconds=1), HOUR - US, HOUR, HOUR + US, 3 * HOUR]
CLASSES = ("default", "sister", "apart", "pooled")  # the first two share a lane
POOL = "cloud"
BASES = [datetime(2021, 6, 1, 12, tzinfo=UTC), datetime(2031, 6, 1, 12, tzinfo=UTC)]
NUMBER = itertools.count(1)

READY = """
select w.item, k.name, k.paused, (w.queue_state).rank, (w.queue_state).ready_since as since
from eve.work_item as w
join eve.work_class as k using (queue_id, class_id)
where w.queue_id = %s and (w.queue_state).phase = 'ready'
"""


@dataclass
class Open:
    """A caller with, perhaps, a transaction that has taken something."""

    connection: Connection
    level: str | None = None
    taken: list[Row] = field(default_factory=list)


@dataclass
class Bench:
    """One queue, its clock and three callers."""

    db: Database
    queue: str
    now: datetime
    callers: list[Open]
    leases: dict[int, Row] = field(default_factory=dict)
    picks: int = 0

    def __post_init__(self) -> None:
        self.id = self.db.value("select queue_id from eve.queue where name = %s", [self.queue])

    def act(self, role: str, function: str, /, **arguments: object) -> list[Row]:
        return call(self.db.kept(role), function, queue=self.queue, **arguments)

    def step(self, length: timedelta) -> None:
        self.now += length
        self.db.clock.set(self.now)

    def ready(self) -> list[Row]:
        return self.db.rows(READY, [self.id])

    def order(self, classes: list[str] | None) -> list[int]:
        """What must come next, and after it: all ready items that nobody holds, sorted."""
        held = {row.item for caller in self.callers for row in caller.taken}

        def place(row: Row) -> tuple[int, datetime, int]:
            return (max(0, row.rank - (self.now - row.since) // HOUR), row.since, row.item)

        rows = [
            row
            for row in self.ready()
            if row.item not in held and not row.paused and (classes is None or row.name in classes)
        ]
        return [row.item for row in sorted(rows, key=place)]

    def pick(
        self, caller: Open, classes: list[str] | None, number: int, verb: str, level: str
    ) -> None:
        self.act("t_operator", "eve_sweep")  # what is due is done: a pick keeps no house itself
        if caller.level is None:
            caller.connection.execute(f"begin isolation level {level}")
            caller.level = level
        expected = self.order(classes)[:number]
        rows = call(
            caller.connection, verb, queue=self.queue, worker="w", pool=POOL, classes=classes,
            max_items=number,
        )  # fmt: skip
        got = [row.item for row in rows if row.granted]
        assert got == expected, (self.now, self.ready())
        caller.taken += [row for row in rows if row.granted]
        self.picks += len(got)
        if caller.level != "read committed":
            self.end(caller, commit=True)  # its snapshot is old from here on

    def end(self, caller: Open, *, commit: bool) -> None:
        if caller.level is not None:
            caller.connection.execute("commit" if commit else "rollback")
            if commit:
                self.leases.update((row.item, row) for row in caller.taken)
            caller.taken.clear()
            caller.level = None

    def give_back(self, place: int, how: str) -> None:
        """A lease comes back: it keeps its ready_since, and lies under late."""
        if not self.leases:
            return
        row = self.leases.pop(sorted(self.leases)[place % len(self.leases)])
        since = self.since(row.item)
        arguments = {"item": row.item, "token": row.token}
        if how == "lapse":
            self.step(timedelta(days=1, seconds=1))
            self.act("t_operator", "eve_sweep")
            self.leases.clear()
        elif row.expires_at <= self.now:
            self.act("t_operator", "eve_sweep")  # taken before a lapse, committed after it
        else:
            self.act("t_worker", how, **arguments)
            self.step(timedelta(seconds=1))
            self.act("t_operator", "eve_sweep")
        assert self.since(row.item) == since

    def since(self, item: int) -> datetime:
        found = self.db.value(
            "select (queue_state).ready_since from eve.work_item"
            " where queue_id = %s and item = %s", [self.id, item],
        )  # fmt: skip
        assert isinstance(found, datetime)
        return found


@pytest.fixture(scope="module")
def callers(db: Database) -> list[Open]:
    return [Open(db.connect("t_worker")) for _ in range(3)]


def bench(db: Database, callers: list[Open], base: datetime) -> Bench:
    made = Bench(db, db.make_queue(f"order{next(NUMBER)}"), base, callers)
    made.step(timedelta())
    policy: dict[str, object] = {
        "attempts": 1000, "ttl": "1 day", "ttl_ceiling": "1 day", "max_age": "1 day",
        "backoff_base": "0 s",
    }  # fmt: skip
    for name in CLASSES:
        extra: dict[str, object] = {}
        if name == "apart":
            extra = {"own_lane": True}
        if name == "pooled":
            extra = {"pools": [POOL]}
        made.act(
            "t_operator", "eve_define_class",
            **{"class": name}, replay_class="safe", policy={**policy, **extra},
        )  # fmt: skip
    made.act("t_human", "eve_approve_slots", pool=POOL, slots=500)
    return made


steps = st.sampled_from(STEPS)
subsets = st.none() | st.lists(st.sampled_from(CLASSES), min_size=1, unique=True)
ranks = st.integers(0, 3)
actions = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(CLASSES), ranks, steps),
    st.tuples(st.just("submit"), st.just("default"), ranks, st.just(timedelta())),
    st.tuples(st.just("later"), st.sampled_from(CLASSES), ranks, steps),
    st.tuples(st.just("child"), ranks, steps),
    st.tuples(st.just("pick"), st.integers(0, 2), subsets, st.integers(1, 3),
              st.sampled_from(["eve_acquire", "eve_turn"]),
              st.sampled_from(["read committed", "read committed", "repeatable read",
                               "serializable"])),
    st.tuples(st.just("end"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("back"), st.integers(0, 9),
              st.sampled_from(["eve_return", "eve_fail", "lapse"])),
    st.tuples(st.just("rank"), st.integers(0, 9), ranks),
    st.tuples(st.just("pause"), st.sampled_from(CLASSES)),
    st.tuples(st.just("step"), steps),
)  # fmt: skip


@settings(
    max_examples=scaled(40),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(st.sampled_from(BASES), st.lists(actions, min_size=15, max_size=45))
def test_picks_follow_the_order(
    db: Database, callers: list[Open], base: datetime, todo: list[tuple[object, ...]]
) -> None:
    on = bench(db, callers, base)
    paused: set[str] = set()
    try:
        for what, *given_ in todo:
            perform(on, paused, str(what), given_)
        for caller in on.callers:
            on.end(caller, commit=True)
        while on.order(None):
            on.pick(on.callers[0], None, 3, "eve_turn", "read committed")
        assert not on.act("t_worker", "eve_acquire", worker="w", pool=POOL)[0].granted
    finally:
        for caller in on.callers:
            on.end(caller, commit=False)
    event(f"picks {on.picks // 10 * 10}+")
    (audit,) = on.act("t_auditor", "eve_audit")
    assert audit.clean, audit.faults


def perform(on: Bench, paused: set[str], what: str, arguments: list[object]) -> None:
    match what, arguments:
        case "submit", [name, rank, timedelta() as length]:
            on.step(length)
            on.act("t_producer", "eve_submit", **{"class": name}, priority_class=rank)
        case "later", [name, rank, timedelta() as length]:
            # Ready from its not_before on, whenever somebody notices.
            due = on.now + length + US
            (row,) = on.act(
                "t_producer", "eve_submit", **{"class": name}, priority_class=rank, not_before=due
            )
            on.step(length + timedelta(seconds=2))
            on.act("t_operator", "eve_sweep")
            assert on.since(row.item) == due
        case "child", [rank, timedelta() as length]:
            # Ready when its dependency was verified.
            number = next(NUMBER)
            (row,) = on.act(
                "t_producer", "eve_submit", priority_class=rank, after=[f"parent{number}"]
            )
            on.step(length)
            (parent,) = on.act("t_producer", "eve_submit", work_id=f"parent{number}")
            if "default" in paused:
                return
            (lease,) = on.act("t_worker", "eve_acquire", worker="w", item=parent.item, pool=POOL)
            on.act("t_worker", "eve_complete", item=lease.item, token=lease.token)
            assert on.since(row.item) == on.now
        case "pick", [int() as place, classes, int() as number, str() as verb, str() as level]:
            assert classes is None or isinstance(classes, list)
            on.pick(on.callers[place], classes, number, verb, level)
        case "end", [int() as place, bool() as commit]:
            on.end(on.callers[place], commit=commit)
        case "back", [int() as place, str() as how]:
            on.give_back(place, how)
        case "rank", [int() as place, int() as rank]:
            free = on.order(None)
            if free:
                item = free[place % len(free)]
                since = on.since(item)
                on.act("t_operator", "eve_reprioritise", item=item, priority_class=rank)
                assert on.since(item) == since
        case "pause", [str() as name]:
            verb = "eve_unpause" if name in paused else "eve_pause"
            paused ^= {name}
            on.act("t_operator", verb, **{"class": name})
        case "step", [timedelta() as length]:
            on.step(length)
        case _:
            raise AssertionError(what)


def test_an_interval_completes_at_its_very_instant(db: Database, callers: list[Open]) -> None:
    """At ready_since + r hours exactly rank r comes before any rank 0 that became ready later."""
    for rank in (1, 2, 3):
        for late in (-US, timedelta(), US):
            on = bench(db, callers, BASES[0])
            (old,) = on.act("t_producer", "eve_submit", priority_class=rank)
            on.step(US)
            (young,) = on.act("t_producer", "eve_submit", priority_class=0)
            on.step(rank * HOUR - US + late)
            expected = [young.item, old.item] if late < timedelta() else [old.item, young.item]
            assert on.order(None) == expected
            on.pick(on.callers[0], None, 2, "eve_acquire", "read committed")
            on.end(on.callers[0], commit=True)


def test_exact_ties_follow_the_item(db: Database, callers: list[Open]) -> None:
    on = bench(db, callers, BASES[1])
    items = [on.act("t_producer", "eve_submit", priority_class=2)[0].item for _ in range(6)]
    for place in range(6):
        on.pick(on.callers[place % 3], None, 1, "eve_acquire", "read committed")
    taken = [row.item for caller in on.callers for row in caller.taken]
    assert sorted(taken) == items
    for caller in on.callers:
        on.end(caller, commit=True)


def test_the_next_caller_gets_the_next_and_never_nothing(db: Database, callers: list[Open]) -> None:
    """Takes of several transactions are open at once, over ranks, lanes and late rows."""
    on = bench(db, callers, BASES[0])
    for rank in (3, 0, 2, 1):
        for name in CLASSES:
            on.act("t_producer", "eve_submit", **{"class": name}, priority_class=rank)
            on.step(timedelta(minutes=1))
    for place in range(4):
        on.pick(on.callers[0], None, 1, "eve_acquire", "read committed")
        on.end(on.callers[0], commit=True)
        on.give_back(place, "eve_return")
    for place in range(16):
        on.pick(on.callers[place % 3], None, 1, "eve_acquire", "read committed")
    assert sum(len(caller.taken) for caller in on.callers) == 16
    on.end(on.callers[1], commit=False)
    on.pick(on.callers[0], None, 9, "eve_acquire", "read committed")
    for caller in on.callers:
        on.end(caller, commit=True)
