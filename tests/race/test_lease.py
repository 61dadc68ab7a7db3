"""No double lease: while a take is uncommitted others get the next, and of twins one is granted."""

from __future__ import annotations

import random
from collections.abc import Callable

import psycopg
import pytest

from support.database import call
from support.desk import Desk
from support.race import ABOVE, LEVELS, attempt, refused, rush, scaled
from support.session import PATIENCE, Session

Open = Callable[[str], Session]


@pytest.mark.parametrize("level", LEVELS)
def test_a_named_item_is_granted_to_one(desk: Desk, session: Open, level: str) -> None:
    desk.approve("cloud", 4)
    item = desk.item()
    a, b = session("t_worker"), session("t_worker2")
    a.execute("begin")
    b.execute(f"begin isolation level {level}")
    b.execute("select 1")
    lease = a.call("eve_acquire", queue="q", worker="a", item=item)
    assert lease.granted
    busy = b.call("eve_acquire", queue="q", worker="b", item=item)
    assert (busy.granted, busy.refusal) == (False, "not_acquirable")
    assert busy.detail["blocked"] == "another transaction is taking it"
    a.execute("commit")
    if level == "read committed":
        assert b.call("eve_acquire", queue="q", worker="b", item=item).refusal == "not_acquirable"
    else:
        assert refused(b, "eve_acquire", queue="q", worker="b", item=item) == "40001"
    b.execute("rollback")
    assert desk.kinds(item) == ["admitted", "acquired"]


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_rolled_back_take_held_is_next_again(desk: Desk, session: Open, level: str) -> None:
    desk.approve("cloud", 4)
    first, second, third = desk.item(), desk.item(), desk.item()
    a, b = session("t_worker"), session("t_worker")
    a.execute(f"begin isolation level {level}")
    assert a.call("eve_acquire", queue="q", worker="a").item == first
    assert b.call("eve_acquire", queue="q", worker="b").item == second
    a.execute("rollback")
    assert b.call("eve_acquire", queue="q", worker="b").item == first
    assert b.call("eve_acquire", queue="q", worker="b").item == third
    assert [e.token for e in desk.events(first) if e.kind == "acquired"] == [1]


@pytest.mark.parametrize("level", ABOVE)
def test_an_old_snapshot_takes_nothing_that_was_taken_since(
    desk: Desk, session: Open, level: str
) -> None:
    """It still sees the ready row. A row that is gone is 40001, never a second lease."""
    desk.approve("cloud", 4)
    item = desk.item()
    a = session("t_worker")
    a.execute(f"begin isolation level {level}")
    a.execute("select 1")
    desk.lease()
    assert refused(a, "eve_acquire", queue="q", worker="a") == "40001"
    a.execute("rollback")
    assert desk.kinds(item) == ["admitted", "acquired"]


def test_a_lapsed_lease_is_recovered_once(desk: Desk, session: Open) -> None:
    """Two who find it lapsed at once: one recovers, the other finds the slot taken or free."""
    desk.clock.set("2031-06-01 12:00Z")
    item = desk.item()
    desk.lapse(desk.lease())
    a, b = session("t_worker"), session("t_worker2")
    a.execute("begin")
    lease = a.call("eve_acquire", queue="q", worker="a")
    assert (lease.item, lease.attempt) == (item, 2)
    assert not b.call("eve_acquire", queue="q", worker="b").granted
    a.execute("commit")
    assert b.call("eve_acquire", queue="q", worker="b").refusal == "concurrency_exhausted"
    assert desk.kinds(item) == ["admitted", "acquired", "lease_expired", "acquired"]


def test_the_old_holder_and_a_recovery_meet(desk: Desk, session: Open) -> None:
    """Its completion waits for the recovery that is under way, and is refused after it."""
    desk.clock.set("2031-06-01 12:00Z")
    desk.item()
    lease = desk.lease()
    desk.lapse(lease)
    a, b = session("t_worker2"), session("t_worker")
    a.execute("begin")
    assert a.call("eve_acquire", queue="q", worker="a").token > lease.token
    pending = b.start_call("eve_complete", queue="q", item=lease.item, token=lease.token)
    b.until_waiting()
    a.execute("commit")
    with pytest.raises(psycopg.Error) as error:
        pending.result(PATIENCE)
    assert error.value.sqlstate == "VE301"


def test_a_rush_for_the_same_items(desk: Desk) -> None:
    """Workers of all levels drain a queue, some roll back: each item is leased by one at a time."""
    desk.approve("cloud", 8)
    items = [desk.item() for _ in range(scaled(60))]
    done: list[int] = []

    def worker(role: str) -> Callable[[random.Random], None]:
        def run(dice: random.Random) -> None:
            connection = desk.db.connect(role)
            idle = 0
            while idle < 3:
                level = dice.choice(LEVELS)
                ok, rows = attempt(
                    connection,
                    level,
                    lambda: call(connection, "eve_acquire", queue="q", worker="w"),
                    commit=dice.random() < 0.8,
                )
                idle = idle + 1 if ok and not rows[0].granted else 0
                if not ok or not rows[0].granted:
                    continue
                row = rows[0]
                try:
                    call(connection, "eve_complete", queue="q", item=row.item, token=row.token)
                except psycopg.errors.DatabaseError as error:
                    # Rolled back before: its token was never issued, or since to somebody else.
                    if error.sqlstate not in ("VE301", "VE304"):
                        raise
                else:
                    done.append(row.item)

        return run

    rush([worker(role) for role in ("t_worker", "t_worker2", "t_worker", "t_worker2")])
    while (left := desk.acquire()).granted:
        desk.complete(left)
        done.append(left.item)
    # A lease that was rolled back is nobody's; its token may since be the same principal's.
    assert sorted(set(done)) == sorted(items)
    for item in items:
        assert desk.kinds(item) == ["admitted", "acquired", "completed"]
