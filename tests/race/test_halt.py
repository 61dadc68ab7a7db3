"""A halt lets nothing through after it answered settled = true, whatever was under way."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import psycopg
import pytest

from support.database import Row, call
from support.desk import Desk
from support.race import ABOVE, LEVELS, attempt, rush, scaled
from support.session import PATIENCE, Session

Open = Callable[[str], Session]


def halt(desk: Desk, **arguments: object) -> dict[str, object]:
    detail = desk.call("t_operator", "eve_halt", **arguments).detail
    assert isinstance(detail, dict)
    return detail


def halted(desk: Desk) -> str:
    """Halt, and ask for the transaction id to wait for."""
    assert halt(desk) == {"settled": False, "as_of": None, "because": None, "leases": []}
    as_of = halt(desk)["as_of"]
    assert isinstance(as_of, str)
    return as_of


def settled(desk: Desk, as_of: str) -> bool:
    detail = halt(desk, as_of=as_of)
    assert detail["as_of"] == as_of
    return detail["settled"] is True


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("level", LEVELS)
def test_an_acquisition_under_way_is_waited_for(
    desk: Desk, session: Open, level: str, ending: str
) -> None:
    item = desk.item()
    a = session("t_worker")
    a.execute(f"begin isolation level {level}")
    assert a.call("eve_acquire", queue="q", worker="a").granted
    if level != "read committed":
        # It holds the queue row in share mode, so the halt itself waits for it.
        b = session("t_operator")
        pending = b.start_call("eve_halt", queue="q")
        b.until_waiting()
        a.execute(ending)
        pending.result(PATIENCE)
        as_of = str(halt(desk)["as_of"])
    else:
        as_of = halted(desk)
        assert not settled(desk, as_of)
        a.execute(ending)
    answer = halt(desk, as_of=as_of)
    assert answer["settled"] is True
    assert [lease["item"] for lease in answer["leases"]] == ([item] if ending == "commit" else [])  # type: ignore[attr-defined]
    assert desk.acquire(pool="local").refusal == "fleet_halted"


@pytest.mark.parametrize("level", LEVELS)
def test_an_old_transaction_that_acquires_after_the_halt_is_refused(
    desk: Desk, session: Open, level: str
) -> None:
    """Its id is older than the halt: settled waits for it. It reads the halt, or gets 40001."""
    desk.item()
    a = session("t_worker")
    a.execute(f"begin isolation level {level}")
    a.execute("select pg_current_xact_id()")
    as_of = halted(desk)
    assert not settled(desk, as_of)
    if level == "read committed":
        assert a.call("eve_acquire", queue="q", worker="a").refusal == "fleet_halted"
    else:
        with pytest.raises(psycopg.errors.SerializationFailure):
            a.call("eve_acquire", queue="q", worker="a")
    a.execute("rollback")
    assert settled(desk, as_of)


@pytest.mark.parametrize("level", ABOVE)
def test_an_old_snapshot_without_an_id_gets_through_nowhere(
    desk: Desk, session: Open, level: str
) -> None:
    """Settled does not wait for it, and need not: its snapshot is too old to acquire from."""
    desk.item()
    a = session("t_worker")
    a.execute(f"begin isolation level {level}")
    a.execute("select 1")
    as_of = halted(desk)
    assert settled(desk, as_of)
    with pytest.raises(psycopg.errors.SerializationFailure):
        a.call("eve_acquire", queue="q", worker="a")
    a.execute("rollback")


def test_as_of_is_not_given_by_the_transaction_that_halts(desk: Desk, session: Open) -> None:
    """Its id is older than its commit: who began in between has read that nothing is halted."""
    desk.item()
    h, a = session("t_operator"), session("t_worker")
    h.execute("begin")
    h.call("eve_halt", queue="q")
    asked = h.call("eve_halt", queue="q").detail
    assert (asked["settled"], asked["as_of"]) == (False, None)
    a.execute("begin")
    assert a.call("eve_acquire", queue="q", worker="a").granted
    h.execute("commit")
    as_of = str(halt(desk)["as_of"])
    assert not settled(desk, as_of)
    a.execute("commit")
    assert settled(desk, as_of)


def test_as_of_is_not_given_by_a_transaction_that_had_an_id_before(
    desk: Desk, session: Open
) -> None:
    desk.item()
    h, a = session("t_operator"), session("t_worker")
    h.execute("begin")
    h.call("eve_submit", queue="q")
    a.execute("begin")
    assert a.call("eve_acquire", queue="q", worker="a").granted
    as_of = halted(desk)
    asked = h.call("eve_halt", queue="q").detail
    assert (asked["settled"], asked["as_of"]) == (False, None)
    assert asked["because"]
    h.execute("commit")
    assert not settled(desk, as_of)
    a.execute("commit")
    assert settled(desk, as_of)


def test_an_as_of_of_an_earlier_halt_proves_nothing(desk: Desk, session: Open) -> None:
    as_of = halted(desk)
    assert settled(desk, as_of)
    desk.call("t_human", "eve_resume")
    desk.item()
    a = session("t_worker")
    a.execute("begin")
    assert a.call("eve_acquire", queue="q", worker="a").granted
    halt(desk)
    answer = halt(desk, as_of=as_of)
    assert answer["settled"] is False
    assert answer["as_of"] != as_of
    a.execute("rollback")


def test_a_twin_that_waited_through_the_halt_is_waited_for(desk: Desk, session: Open) -> None:
    desk.item()
    a, b = session("t_worker"), session("t_worker")
    a.execute("begin")
    assert a.call("eve_acquire", queue="q", worker="a", idempotency_key="k").granted
    b.execute("begin")
    pending = b.start_call("eve_acquire", queue="q", worker="b", idempotency_key="k")
    b.until_waiting()
    as_of = halted(desk)
    a.execute("rollback")
    pending.result(PATIENCE)
    assert not settled(desk, as_of)
    b.execute("commit")
    assert settled(desk, as_of)


def test_nothing_is_acquired_after_settled(desk: Desk) -> None:
    """Acquirers of all levels, some slow to commit; halts in between."""
    desk.approve("cloud", 6)
    for _ in range(scaled(150)):
        desk.item()
    over = threading.Event()

    def acquirer(dice: random.Random) -> None:
        connection = desk.db.connect("t_worker")
        pause = threading.Event()
        while not over.is_set():
            level = dice.choice(LEVELS)

            def body() -> list[Row]:
                if dice.random() < 0.3:
                    connection.execute("select 1")
                    pause.wait(dice.random() * 0.02)
                taken = call(connection, "eve_acquire", queue="q", worker="w")
                if dice.random() < 0.3:
                    pause.wait(dice.random() * 0.02)
                return taken

            commit = dice.random() < 0.8
            done, taken = attempt(connection, level, body, commit=commit)
            if done and commit and taken[0].granted and dice.random() < 0.7:
                row = taken[0]
                try:
                    call(connection, "eve_return", queue="q", item=row.item, token=row.token)
                except psycopg.errors.SerializationFailure:
                    continue

    def count() -> int:
        query = "select count(*) from eve.ledger where queue_id = %s and kind = 'acquired'"
        return int(desk.db.value(query, [desk.id]))

    def halter(dice: random.Random) -> None:
        pause = threading.Event()
        try:
            for _ in range(scaled(12)):
                pause.wait(dice.random() * 0.05)
                halt(desk)
                as_of = str(halt(desk)["as_of"])
                while not settled(desk, as_of):
                    pause.wait(0.002)
                before = count()
                pause.wait(0.03)
                assert count() == before
                desk.call("t_human", "eve_resume")
        finally:
            over.set()

    rush([halter, *[acquirer] * 4], over)
    assert count() > 0
