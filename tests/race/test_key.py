"""Twins of a keyed request: one is carried out, the other waits and is given the same answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import psycopg
import pytest

from support.database import Row
from support.desk import Desk
from support.race import ABOVE
from support.session import PATIENCE, Session

Open = Callable[[str], Session]


class Request(NamedTuple):
    role: str
    function: str
    arguments: dict[str, object]


def requests(desk: Desk) -> dict[str, Request]:
    """One request of each kind, each with an item of its own to act on."""
    desk.approve("cloud", 40)

    def lease() -> dict[str, object]:
        row = desk.lease(item=desk.item())
        return {"item": row.item, "token": row.token}

    turn = lease()
    spend = desk.call("t_operator", "eve_propose", kind="spend", pool="cloud", slots=39)
    made = {
        "submit": Request("t_producer", "eve_submit", {"work_id": "twin"}),
        "complete": Request("t_worker", "eve_complete", {**lease(), "result": {"n": 1}}),
        "batch": Request(
            "t_worker", "eve_complete_batch", {k + "s": [v] for k, v in lease().items()}
        ),
        "renew": Request("t_worker", "eve_renew", lease()),
        "fail": Request("t_worker", "eve_fail", lease()),
        "return": Request("t_worker", "eve_return", lease()),
        "cancel": Request("t_operator", "eve_cancel", {"item": desk.item()}),
        "reject": Request("t_human", "eve_reject", {"item": desk.item(), "reason": "no"}),
        "unpark": Request("t_human", "eve_unpark", {"item": desk.quarantined()}),
        "reprioritise": Request(
            "t_operator", "eve_reprioritise", {"item": desk.item(), "priority_class": 0}
        ),
        "propose": Request("t_worker", "eve_propose", {"kind": "approval"}),
        "accept": Request("t_human", "eve_accept", {"decision": spend.decision}),
        "halt": Request("t_operator", "eve_halt", {}),
        "define": Request(
            "t_operator", "eve_define_class", {"class": "x", "replay_class": "safe"}
        ),
        "sweep": Request("t_operator", "eve_sweep", {}),
        "acquire": Request("t_worker", "eve_acquire", {"worker": "w", "max_items": 2}),
        "turn": Request(
            "t_worker", "eve_turn",
            {"worker": "w", "items": [turn["item"]], "tokens": [turn["token"]]},
        ),
    }  # fmt: skip
    for _ in range(4):
        desk.item()
    return made


KINDS = (
    "submit", "acquire", "turn", "complete", "batch", "renew", "fail", "return", "cancel", "reject",
    "unpark", "reprioritise", "propose", "accept", "halt", "define", "sweep",
)  # fmt: skip


def plain(row: Row) -> dict[str, object]:
    return {name: value for name, value in row._asdict().items() if name != "replayed"}


def events(desk: Desk) -> int:
    return int(desk.db.value("select count(*) from eve.ledger where queue_id = %s", [desk.id]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_twin_waits_and_is_given_the_first_answer(desk: Desk, session: Open, kind: str) -> None:
    request = requests(desk)[kind]
    before = events(desk)
    a, b = session(request.role), session(request.role)
    arguments = {"queue": "q", **request.arguments, "idempotency_key": "k"}
    a.execute("begin")
    first = a.start_call(request.function, **arguments).result(PATIENCE)
    twin = b.start_call(request.function, **arguments)
    b.until_waiting()
    a.execute("commit")
    after = events(desk)
    second = twin.result(PATIENCE)
    assert [plain(row) for row in second] == [plain(row) for row in first]
    if kind != "sweep":
        assert {row.replayed for row in first} == {False}
        assert {row.replayed for row in second} == {True}
        assert after > before
    assert events(desk) == after


@pytest.mark.parametrize("kind", ["submit", "acquire", "turn", "complete"])
def test_a_twin_of_one_that_rolled_back_is_the_first(desk: Desk, session: Open, kind: str) -> None:
    request = requests(desk)[kind]
    a, b = session(request.role), session(request.role)
    arguments = {"queue": "q", **request.arguments, "idempotency_key": "k"}
    a.execute("begin")
    a.start_call(request.function, **arguments).result(PATIENCE)
    twin = b.start_call(request.function, **arguments)
    b.until_waiting()
    a.execute("rollback")
    assert {row.replayed for row in twin.result(PATIENCE)} == {False}


@pytest.mark.parametrize("level", ABOVE)
@pytest.mark.parametrize("kind", ["submit", "acquire", "turn", "complete"])
def test_a_twin_with_an_old_snapshot_is_asked_to_repeat(
    desk: Desk, session: Open, kind: str, level: str
) -> None:
    request = requests(desk)[kind]
    a, b = session(request.role), session(request.role)
    arguments = {"queue": "q", **request.arguments, "idempotency_key": "k"}
    b.execute(f"begin isolation level {level}")
    b.execute("select 1")
    first = a.start_call(request.function, **arguments).result(PATIENCE)
    before = events(desk)
    with pytest.raises(psycopg.errors.SerializationFailure):
        b.start_call(request.function, **arguments).result(PATIENCE)
    b.execute("rollback")
    second = b.start_call(request.function, **arguments).result(PATIENCE)
    assert [plain(row) for row in second] == [plain(row) for row in first]
    assert events(desk) == before


def test_a_twin_with_other_arguments_is_refused(desk: Desk, session: Open) -> None:
    a, b = session("t_producer"), session("t_producer")
    a.execute("begin")
    a.call("eve_submit", queue="q", work_id="one", idempotency_key="k")
    twin = b.start_call("eve_submit", queue="q", work_id="two", idempotency_key="k")
    b.until_waiting()
    a.execute("commit")
    with pytest.raises(psycopg.Error) as refused:
        twin.result(PATIENCE)
    assert refused.value.sqlstate == "VE401"
    assert desk.db.value("select count(*) from eve.intent where queue_id = %s", [desk.id]) == 1


def test_a_twin_of_nothing_ready_looks_for_itself(desk: Desk, session: Open) -> None:
    a, b = session("t_worker"), session("t_worker")
    a.execute("begin")
    assert not a.call("eve_acquire", queue="q", worker="w", idempotency_key="k").granted
    item = desk.item()
    twin = b.start_call("eve_acquire", queue="q", worker="w", idempotency_key="k")
    b.until_waiting()
    a.execute("commit")
    (answer,) = twin.result(PATIENCE)
    assert (answer.granted, answer.item, answer.replayed) == (True, item, False)
