"""Two last parents never strand a child, nor does a parent that finishes while it is written."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from support.database import Row
from support.desk import Desk
from support.race import LEVELS
from support.session import PATIENCE, Session

Open = Callable[[str], Session]


def parents(desk: Desk, number: int = 2) -> tuple[list[Row], int]:
    """Leased parents, and a child that waits for all of them."""
    desk.approve("cloud", 8)
    names = [f"p{n}" for n in range(number)]
    for name in names:
        desk.item(work_id=name)
    leases = desk.leases(number)
    child = desk.item(work_id="child", after=names)
    assert desk.holds(child) == ["dependency_not_ready"]
    return leases, child


def finish(session: Session, lease: Row) -> Row:
    return session.call("eve_complete", queue="q", item=lease.item, token=lease.token)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["in order", "reversed"])
@pytest.mark.parametrize("first", LEVELS)
@pytest.mark.parametrize("second", LEVELS)
def test_two_last_parents_release_their_child(
    desk: Desk, session: Open, first: str, second: str, order: tuple[int, int]
) -> None:
    """The second waits for the first; above READ COMMITTED it may be asked to repeat (40001)."""
    leases, child = parents(desk)
    one, two = leases[order[0]], leases[order[1]]
    a, b = session("t_worker"), session("t_worker")
    a.execute(f"begin isolation level {first}")
    b.execute(f"begin isolation level {second}")
    b.execute("select 1")
    finish(a, one)
    pending = b.start_call("eve_complete", queue="q", item=two.item, token=two.token)
    b.until_waiting()
    a.execute("commit")
    if second == "read committed":
        pending.result(PATIENCE)
        b.execute("commit")
    else:
        with pytest.raises(psycopg.errors.SerializationFailure):
            pending.result(PATIENCE)
        b.execute("rollback")
        finish(b, two)
    assert desk.phase(child) == "ready"


@pytest.mark.parametrize("level", LEVELS)
def test_a_last_parent_that_rolls_back_releases_nothing(
    desk: Desk, session: Open, level: str
) -> None:
    leases, child = parents(desk)
    a, b = session("t_worker"), session("t_worker")
    a.execute(f"begin isolation level {level}")
    b.execute(f"begin isolation level {level}")
    finish(a, leases[0])
    pending = b.start_call("eve_complete", queue="q", item=leases[1].item, token=leases[1].token)
    b.until_waiting()
    a.execute("rollback")
    pending.result(PATIENCE)
    b.execute("commit")
    assert desk.phase(child) == "held"
    finish(a, leases[0])
    assert desk.phase(child) == "ready"


WAYS = ["acquire", "sweep"]


def look_again(desk: Desk, way: str, times: int = 3) -> None:
    """Seconds pass; somebody comes by."""
    for _ in range(times):
        desk.clock.advance(2)
        if way == "sweep":
            desk.sweep()
        else:
            desk.acquire(role="t_worker2", pool="local", classes=["other"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_parent_that_finishes_while_its_child_is_being_submitted(
    desk: Desk, session: Open, level: str, way: str
) -> None:
    desk.define("other", replay_class="safe")
    desk.item(work_id="parent")
    lease = desk.lease()
    a = session("t_producer")
    a.execute(f"begin isolation level {level}")
    child = a.call("eve_submit", queue="q", work_id="child", after=["parent"])
    assert (child.decision, child.reason) == ("HOLD", "dependency_not_ready")
    desk.complete(lease)
    a.execute("commit")
    assert desk.phase(child.item) == "held"
    look_again(desk, way)
    assert desk.phase(child.item) == "ready"


@pytest.mark.parametrize("way", WAYS)
def test_a_parent_that_was_not_yet_committed_when_the_child_was_first_looked_at(
    desk: Desk, session: Open, way: str
) -> None:
    """The looker's transaction is older than the parent's: its id alone would say too little."""
    desk.define("other", replay_class="safe")
    desk.item(work_id="parent")
    lease = desk.lease()
    look, child_, parent = session("t_worker2"), session("t_producer"), session("t_worker")
    look.execute("begin")
    look.call("eve_acquire", queue="q", worker="w", pool="local", classes=["other"])
    child_.execute("begin")
    child = child_.call("eve_submit", queue="q", work_id="child", after=["parent"])
    parent.execute("begin")
    finish(parent, lease)
    child_.execute("commit")
    desk.clock.advance(2)
    look.call("eve_acquire", queue="q", worker="w", pool="local", classes=["other"])
    look.execute("commit")
    look_again(desk, "acquire")
    assert desk.phase(child.item) == "held"
    parent.execute("commit")
    look_again(desk, way)
    assert desk.phase(child.item) == "ready"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_name_that_becomes_known_while_its_child_is_being_submitted(
    desk: Desk, session: Open, level: str, way: str
) -> None:
    desk.define("other", replay_class="safe")
    a = session("t_producer")
    a.execute(f"begin isolation level {level}")
    child = a.call("eve_submit", queue="q", work_id="child", after=["parent"])
    assert (child.decision, child.reason) == ("HOLD", "unknown_dependency")
    parent = desk.item(work_id="parent")
    a.execute("commit")
    look_again(desk, way)
    assert desk.holds(child.item) == ["dependency_not_ready"]
    desk.complete(desk.lease(item=parent))
    assert desk.phase(child.item) == "ready"


@pytest.mark.parametrize("way", WAYS)
def test_a_name_that_becomes_known_and_verified_while_its_child_is_being_submitted(
    desk: Desk, session: Open, way: str
) -> None:
    desk.define("other", replay_class="safe")
    a = session("t_producer")
    a.execute("begin")
    child = a.call("eve_submit", queue="q", work_id="child", after=["parent"])
    desk.done(work_id="parent")
    a.execute("commit")
    look_again(desk, way)
    assert desk.phase(child.item) == "ready"


@pytest.mark.parametrize("way", WAYS)
def test_a_decision_that_is_accepted_while_its_item_is_being_submitted(
    desk: Desk, session: Open, way: str
) -> None:
    desk.define("other", replay_class="safe")
    asked = desk.call("t_operator", "eve_propose", kind="approval")
    a = session("t_producer")
    a.execute("begin")
    item = a.call("eve_submit", queue="q", work_id="child", decision=asked.decision).item
    desk.call("t_human", "eve_accept", decision=asked.decision)
    a.execute("commit")
    assert desk.holds(item) == ["awaiting_decision"]
    look_again(desk, way)
    assert desk.phase(item) == "ready"


@pytest.mark.parametrize("way", WAYS)
def test_a_decision_that_is_declined_while_its_item_is_being_submitted(
    desk: Desk, session: Open, way: str
) -> None:
    desk.define("other", replay_class="safe")
    asked = desk.call("t_operator", "eve_propose", kind="approval")
    a = session("t_producer")
    a.execute("begin")
    item = a.call("eve_submit", queue="q", work_id="child", decision=asked.decision).item
    desk.call("t_human", "eve_decline", decision=asked.decision)
    a.execute("commit")
    look_again(desk, way)
    assert desk.phase(item) == "cancelled"


@pytest.mark.parametrize("way", WAYS)
def test_a_policy_that_answers_while_its_item_is_being_submitted(
    desk: Desk, session: Open, way: str
) -> None:
    desk.define("other", replay_class="safe")
    desk.define("vague", replay_class="unknown")
    a = session("t_producer")
    a.execute("begin")
    item = a.call("eve_submit", queue="q", **{"class": "vague"}).item
    desk.define("vague", replay_class="safe")
    a.execute("commit")
    assert desk.holds(item) == ["replay_class_unknown"]
    look_again(desk, way)
    assert desk.phase(item) == "ready"
