"""Never more of a limit key than its class allows; and none that waits is forgotten."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest

from support.database import Connection, Row, call
from support.desk import Desk
from support.race import ABOVE, LEVELS, attempt, rush, scaled
from support.session import PATIENCE, Session

Open = Callable[[str], Session]

SAFE = {"preset": "job", "replay_class": "safe", "backoff_base": "0 s", "attempts": 100}
LIVE = """
select i.limit_key, count(*) as many from eve.intent as i
join eve.work_item as w on w.queue_id = i.queue_id and w.item = i.item
where i.queue_id = %s and i.limited and (w.queue_state).phase in ('ready', 'leased')
group by i.limit_key
"""


@pytest.fixture
def limited(desk: Desk) -> Desk:
    desk.approve("cloud", 8)
    desk.define("default", **SAFE, limit_per_key=1)
    return desk


def submit(session: Session, **arguments: Any) -> Any:
    return session.call("eve_submit", queue="q", **arguments)


def patient(desk: Desk, role: str, function: str, **arguments: Any) -> None:
    """A call that may wait for nobody."""
    with desk.db.connect(role) as connection:
        connection.execute("set statement_timeout = '20 s'")
        call(connection, function, queue="q", **arguments)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("level", LEVELS)
def test_of_twin_first_submissions_one_is_admitted(
    limited: Desk, session: Open, level: str, ending: str
) -> None:
    a, b = session("t_producer"), session("t_producer")
    a.execute("begin")
    assert submit(a, limit_key="k").decision == "ADMIT"
    b.execute(f"begin isolation level {level}")
    pending = b.start_call("eve_submit", queue="q", limit_key="k")
    b.until_waiting()
    a.execute(ending)
    if ending == "commit" and level in ABOVE:
        with pytest.raises(psycopg.errors.SerializationFailure):
            pending.result(PATIENCE)
        return
    second = pending.result(PATIENCE)[0]
    b.execute("commit")
    assert second.decision == ("HOLD" if ending == "commit" else "ADMIT")
    limited.sweep()


@pytest.mark.parametrize("level", LEVELS)
def test_the_end_of_one_waits_for_no_open_submission(
    limited: Desk, session: Open, level: str
) -> None:
    """And who was not seen is found by the second look, or by a call."""
    first = limited.item(limit_key="k")
    b = session("t_producer")
    b.execute("begin")
    second = submit(b, limit_key="k")
    assert second.reason == "key_saturated"
    with limited.db.connect("t_operator") as operator:
        operator.execute("set statement_timeout = '20 s'")
        operator.execute(f"begin isolation level {level}")
        call(operator, "eve_cancel", queue="q", item=first)
        operator.execute("commit")
    patient(limited, "t_operator", "eve_sweep")
    b.execute("commit")
    limited.sweep()
    assert limited.phase(second.item) == "ready"


def test_nobody_who_comes_for_work_waits_for_a_first_submission(
    limited: Desk, session: Open
) -> None:
    """The release of an item whose key somebody else is making."""
    limited.item(work_id="p")
    child = limited.item(limit_key="k", after=["p"])
    lease = limited.lease()
    b = session("t_producer")
    b.execute("begin")
    taker = submit(b, limit_key="k")
    assert taker.decision == "ADMIT"
    patient(limited, "t_worker", "eve_complete", item=lease.item, token=lease.token)
    assert limited.holds(child) == ["key_saturated"]
    patient(limited, "t_operator", "eve_sweep")
    b.execute("rollback")
    limited.sweep()
    assert limited.phase(child) == "ready"


def test_a_call_stands_while_who_waits_is_locked(limited: Desk, session: Open) -> None:
    first, second = (limited.item(limit_key="k") for _ in range(2))
    limited.approve("spare", 1)
    limited.sweep()
    a = session("t_operator")
    a.execute("begin")
    a.call("eve_reprioritise", queue="q", item=second, priority_class=0)
    limited.call("t_operator", "eve_cancel", item=first)
    patient(limited, "t_worker", "eve_acquire", worker="w", pool="cloud")
    patient(limited, "t_operator", "eve_sweep")
    a.execute("rollback")
    turn_of = limited.lease(pool="cloud")
    assert turn_of.item == second


@pytest.mark.parametrize("level", LEVELS)
def test_two_acquisitions_give_one_call_to_one(limited: Desk, session: Open, level: str) -> None:
    first, second, third = (limited.item(limit_key="k") for _ in range(3))
    limited.call("t_operator", "eve_cancel", item=first)
    a, b = session("t_worker"), session("t_worker2")
    a.execute(f"begin isolation level {level}")
    b.execute(f"begin isolation level {level}")
    assert a.call("eve_acquire", queue="q", worker="a", pool="cloud").item == second
    assert not b.call("eve_acquire", queue="q", worker="b", pool="cloud").granted
    b.execute("commit")
    a.execute("rollback")
    assert b.call("eve_acquire", queue="q", worker="b", pool="cloud").item == second
    assert limited.phase(third) == "held"


def test_a_sweep_that_forgets_a_key_and_who_needs_it(limited: Desk, session: Open) -> None:
    limited.call("t_operator", "eve_cancel", item=limited.item(limit_key="k"))
    a, b = session("t_operator"), session("t_producer")
    a.execute("begin")
    a.call("eve_sweep", queue="q")
    pending = b.start_call("eve_submit", queue="q", limit_key="k")
    answer = pending.result(PATIENCE)[0]
    a.execute("commit")
    limited.sweep()
    limited.sweep()
    assert limited.phase(answer.item) == "ready"


def test_a_submission_that_took_a_ticket_keeps_the_key(limited: Desk, session: Open) -> None:
    limited.call("t_operator", "eve_cancel", item=limited.item(limit_key="k"))
    b = session("t_producer")
    b.execute("begin")
    taker = submit(b, limit_key="k")
    assert taker.decision == "ADMIT"
    patient(limited, "t_operator", "eve_sweep")
    b.execute("commit")
    assert limited.submit(limit_key="k").decision == "HOLD"


LIMIT = 3


def finish(connection: Connection, level: str, end: str, row: Row) -> None:
    """Until it is done, or somebody cancelled the item."""

    def body() -> Any:
        return call(connection, end, queue="q", item=row.item, token=row.token)

    try:
        while not attempt(connection, level, body)[0]:
            pass
    except psycopg.Error as error:
        assert error.sqlstate in ("VE301", "VE304"), error  # noqa: PT017


def work(desk: Desk, level: str, over: threading.Event) -> Callable[[random.Random], None]:
    def run(dice: random.Random) -> None:
        with desk.db.connect("t_worker") as connection:
            idle = 0
            while idle < 40:
                mine = held(connection, level, dice)
                idle = idle + 1 if mine is None and over.is_set() else 0

    def held(connection: Connection, level: str, dice: random.Random) -> Any:
        done, rows = attempt(connection, level, lambda: call(
            connection, "eve_acquire", queue="q", worker="w", pool="cloud",
            max_items=dice.randrange(1, 3)))  # fmt: skip
        if not done or not rows[0].granted:
            return None if done else 0
        for row in rows:
            end = dice.choice(("eve_complete", "eve_complete", "eve_fail", "eve_return"))
            finish(connection, level, end, row)
        return rows

    return run


@pytest.mark.parametrize("level", LEVELS[:2])
def test_a_rush_keeps_the_limit_and_strands_nobody(desk: Desk, level: str) -> None:
    desk.approve("cloud", 8)
    desk.define("default", **SAFE, limit_per_key=LIMIT)
    over = threading.Event()
    left = [3]
    lock = threading.Lock()

    def produce(dice: random.Random) -> None:
        with desk.db.connect("t_producer") as producer, desk.db.connect("t_operator") as other:
            try:
                for _ in range(scaled(40)):
                    asked = {
                        "limit_key": dice.choice(("hot", "hot", "hot", "warm", None)),
                        "priority_class": dice.randrange(4),
                    }
                    done, rows = attempt(producer, level, partial(
                        call, producer, "eve_submit", queue="q", **asked))  # fmt: skip
                    if done and dice.random() < 0.15:
                        attempt(other, level, partial(
                            call, other, "eve_cancel", queue="q", item=rows[0].item))  # fmt: skip
                    if dice.random() < 0.05:
                        attempt(other, LEVELS[0], partial(call, other, "eve_sweep", queue="q"))
            finally:
                with lock:
                    left[0] -= 1
                    if not left[0]:
                        over.set()

    def watch(_: random.Random) -> None:
        with desk.db.connect("postgres") as connection:
            while not over.is_set():
                for row in connection.execute(LIVE, [desk.id]).fetchall():
                    assert row.many <= LIMIT, row

    rush([*[work(desk, level, over)] * 8, *[produce] * 3, watch], over)
    for _ in range(3):
        desk.sweep()
        work(desk, "read committed", over)(random.Random(1))
    left_over = desk.db.rows(
        "select item, (w.queue_state).phase from eve.work_item as w where queue_id = %s"
        " and (w.queue_state).phase in ('ready', 'held', 'leased')",
        [desk.id],
    )
    assert not left_over


def test_a_saturated_key_stops_no_neighbour(desk: Desk, session: Open) -> None:
    """Its only ticket lies in an open transaction; all others flow and nothing of it is scanned."""
    desk.approve("cloud", 8)
    desk.define("default", **SAFE, limit_per_key=1)
    hot = [desk.item(limit_key="hot") for _ in range(20)]
    other = [desk.item(limit_key=f"k{n}") for n in range(5)]
    a = session("t_worker")
    a.execute("begin")
    assert a.call("eve_acquire", queue="q", worker="a", pool="cloud").item == hot[0]
    assert [desk.lease(pool="cloud").item for _ in range(5)] == other
    assert not desk.acquire(pool="cloud").granted
    assert desk.db.value("select count(*) from eve.ready where queue_id = %s", [desk.id]) == 1
    a.execute("rollback")
