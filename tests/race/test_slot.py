"""Never more than N live leases in a pool; whatever races, slots are accounted for afterwards."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import psycopg
import pytest

from support.database import Connection, Row, call
from support.desk import Desk
from support.race import LEVELS, attempt, rush, scaled
from support.session import PATIENCE, Session

Open = Callable[[str], Session]

ACCOUNT = """
select
    (select count(*) from eve.free_slot as f where f.queue_id = p.queue_id and f.pool = p.pool)
    + (select count(*) from eve.held_slot as h where h.queue_id = p.queue_id and h.pool = p.pool)
        = p.slots + p.surplus as balanced,
    (select count(*) from eve.held_slot as h where h.queue_id = p.queue_id and h.pool = p.pool)
        as held,
    p.slots, p.surplus
from eve.pool as p join eve.queue as q using (queue_id) where q.name = 'q' and p.pool = 'cloud'
"""


def account(desk: Desk) -> Row:
    """Free, held and authorised slots, in one snapshot."""
    row = desk.db.row(ACCOUNT)
    assert row.balanced, row
    return row


def acquire(session: Session) -> Row:
    return session.call("eve_acquire", queue="q", worker="w")


@pytest.mark.parametrize("level", LEVELS)
def test_the_last_slot_goes_to_one(desk: Desk, session: Open, level: str) -> None:
    desk.approve("cloud", 1)
    desk.item()
    desk.item()
    a, b = session("t_worker"), session("t_worker2")
    a.execute(f"begin isolation level {level}")
    b.execute(f"begin isolation level {level}")
    assert acquire(a).granted
    assert acquire(b).refusal == "concurrency_exhausted"
    b.execute("rollback")
    a.execute("rollback")
    assert acquire(b).granted
    assert account(desk).held == 1


@pytest.mark.parametrize("level", LEVELS)
def test_a_pool_that_shrinks_while_a_lease_ends(desk: Desk, session: Open, level: str) -> None:
    """In both orders of commit; afterwards as many leases as the smaller pool has, no more."""
    desk.approve("cloud", 3)
    for _ in range(8):
        desk.item()
    first, second, _ = desk.leases(3)
    holder, human = session("t_worker"), session("t_human")
    holder.execute(f"begin isolation level {level}")
    holder.call("eve_complete", queue="q", item=first.item, token=first.token)
    human.execute("begin")
    human.call("eve_approve_slots", queue="q", pool="cloud", slots=1)
    holder.execute("commit")
    human.execute("commit")
    account(desk)
    holder.execute(f"begin isolation level {level}")
    holder.execute("select 1")
    human.call("eve_approve_slots", queue="q", pool="cloud", slots=2)
    human.call("eve_approve_slots", queue="q", pool="cloud", slots=1)
    try:
        holder.call("eve_complete", queue="q", item=second.item, token=second.token)
        holder.execute("commit")
    except psycopg.errors.SerializationFailure:
        holder.execute("rollback")
        holder.call("eve_complete", queue="q", item=second.item, token=second.token)
    assert not desk.acquire().granted
    assert account(desk).held == 1


@pytest.mark.parametrize("level", LEVELS)
def test_a_pool_that_grows_while_a_lease_ends(desk: Desk, session: Open, level: str) -> None:
    desk.approve("cloud", 3)
    for _ in range(8):
        desk.item()
    leases = desk.leases(3)
    desk.approve("cloud", 1)
    holder, human = session("t_worker"), session("t_human")
    holder.execute(f"begin isolation level {level}")
    holder.call("eve_complete", queue="q", item=leases[2].item, token=leases[2].token)
    human.execute("begin")
    pending = human.start_call("eve_approve_slots", queue="q", pool="cloud", slots=3)
    if not pending.done():
        holder.execute("commit")
    pending.result(PATIENCE)
    human.execute("commit")
    account(desk)
    assert desk.acquire().granted
    assert not desk.acquire().granted
    assert account(desk).held == 3


def test_a_shrink_does_not_wait_for_a_take_under_way(desk: Desk, session: Open) -> None:
    desk.approve("cloud", 2)
    desk.item()
    a, human = session("t_worker"), session("t_human")
    a.execute("begin")
    assert acquire(a).granted
    human.call("eve_approve_slots", queue="q", pool="cloud", slots=1)
    a.execute("rollback")
    account(desk)
    assert desk.acquire().granted
    assert not desk.acquire().granted


def test_never_more_than_n_leases_at_mixed_levels(desk: Desk) -> None:
    """Takes, turns, returns, rollbacks and slow commits of threads at all levels, N fixed."""
    n = 3
    desk.approve("cloud", n)
    for _ in range(scaled(120)):
        desk.item()
    over = threading.Event()
    most = 0

    def watch(_: random.Random) -> None:
        nonlocal most
        connection = desk.db.connect("postgres")
        while not over.wait(0.002):
            row = connection.execute(ACCOUNT).fetchone()
            assert row is not None
            assert row.balanced, row
            assert row.held <= n, row
            most = max(most, row.held)

    finished = drain(desk, over, resize=False)
    rush([watch, *finished], over)
    assert account(desk).slots == n
    assert most == n


def test_a_pool_that_shrinks_and_grows_under_way(desk: Desk) -> None:
    """Balanced at every instant; when all is quiet exactly N are granted."""
    desk.approve("cloud", 4)
    for _ in range(scaled(120)):
        desk.item()
    over = threading.Event()

    def watch(_: random.Random) -> None:
        connection = desk.db.connect("postgres")
        while not over.wait(0.002):
            row = connection.execute(ACCOUNT).fetchone()
            assert row is not None
            assert row.balanced, row
            assert row.held <= 6, row

    rush([watch, *drain(desk, over, resize=True)], over)
    for lease in desk.db.rows(
        "select item, token from eve.held_slot where queue_id = %s", [desk.id]
    ):
        desk.complete(lease)
    for slots in (5, 2, 3):
        desk.approve("cloud", slots)
    row = account(desk)
    assert (row.held, row.slots, row.surplus) == (0, 3, 0)
    for _ in range(4):
        desk.item()
    assert [desk.acquire().granted for _ in range(4)] == [True, True, True, False]


def drain(
    desk: Desk, over: threading.Event, *, resize: bool
) -> list[Callable[[random.Random], None]]:
    """Workers that come and go until they have done their steps, and a human who resizes."""
    running = threading.Semaphore(0)
    workers = 4

    def worker(dice: random.Random) -> None:
        connection = desk.db.connect("t_worker")
        pause = threading.Event()
        mine: list[Row] = []
        try:
            for _ in range(scaled(40)):
                level = dice.choice(LEVELS)

                def body() -> list[Row]:
                    return step(connection, dice, mine, pause)

                commit = dice.random() < 0.85
                done, rows = attempt(connection, level, body, commit=commit)
                if done and commit:
                    mine[:] = [row for row in rows if row.granted]
        finally:
            for row in mine:
                call(connection, "eve_complete", queue="q", item=row.item, token=row.token)
            running.release()

    def human(dice: random.Random) -> None:
        pause = threading.Event()
        for _ in range(workers):
            while not running.acquire(timeout=0.02):
                if resize:
                    connection = desk.db.connect("t_human")
                    attempt(
                        connection,
                        dice.choice(LEVELS),
                        lambda c=connection: resized(c, dice, pause),  # type: ignore[misc]
                        commit=dice.random() < 0.8,
                    )
                    connection.close()
        over.set()

    return [*[worker] * workers, human]


def resized(connection: Connection, dice: random.Random, pause: threading.Event) -> None:
    call(connection, "eve_approve_slots", queue="q", pool="cloud", slots=dice.randint(0, 6))
    pause.wait(dice.random() * 0.02)


def step(
    connection: Connection, dice: random.Random, mine: list[Row], pause: threading.Event
) -> list[Row]:
    """All leases of the worker are finished, and some new ones are taken; in one way or another."""
    if dice.random() < 0.2:
        connection.execute("select 1")
        pause.wait(dice.random() * 0.01)
    most = dice.randint(1, 2)
    if dice.random() < 0.5:
        rows = call(
            connection, "eve_turn", queue="q", worker="w", max_items=most,
            items=[row.item for row in mine], tokens=[row.token for row in mine],
        )  # fmt: skip
        rows = [row for row in rows if row.part == "acquire"]
    else:
        for row in mine:
            verb = dice.choice(("eve_complete", "eve_return"))
            call(connection, verb, queue="q", item=row.item, token=row.token)
        rows = call(connection, "eve_acquire", queue="q", worker="w", max_items=most)
    if dice.random() < 0.3:
        pause.wait(dice.random() * 0.01)
    return rows


@pytest.mark.parametrize("verb", ["eve_sweep", "eve_recover"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_lost_slot_is_put_back_once(desk: Desk, session: Open, verb: str, level: str) -> None:
    """Two who miss it, the second in an old snapshot."""
    desk.approve("cloud", 2)
    desk.db.rows(
        "delete from eve.free_slot where queue_id = %s and pool = 'cloud' and number = 2",
        [desk.id],
    )
    a, b = session("t_operator"), session("t_operator")
    b.execute(f"begin isolation level {level}")
    b.execute("select count(*) from pg_class")
    assert a.call(verb, queue="q").repaired == 1
    try:
        assert b.call(verb, queue="q").repaired == 0
        b.execute("commit")
    except psycopg.errors.SerializationFailure:
        b.execute("rollback")
    account(desk)
    for _ in range(3):
        desk.item()
    assert [desk.acquire().granted for _ in range(3)] == [True, True, False]
