"""Nobody deadlocks: batches in opposite orders, children in common, acts that cross each other.

A superuser holds one row so that both callers stand where a wrong order would catch them; when it
lets go, both must come to their end.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future

import psycopg
import pytest

from support.database import Row, call
from support.desk import Desk
from support.race import rush, scaled
from support.session import PATIENCE, Session, until

Open = Callable[[str], Session]


def blocker(session: Open, table: str, item: int, extra: str = "") -> Session:
    opened = session("postgres")
    opened.execute("begin")
    assert opened.execute(
        f"select item from eve.{table} where item = %s {extra} for update", [item]
    )
    return opened


def both(*pending: Future[list[Row]]) -> list[list[Row]]:
    return [one.result(PATIENCE) for one in pending]


def test_batches_in_opposite_orders(desk: Desk, session: Open) -> None:
    desk.approve("cloud", 4)
    for _ in range(2):
        desk.item()
    leases = desk.leases(2)
    f, a, b = session("t_worker"), session("t_worker"), session("t_worker")
    f.execute("begin")
    f.call("eve_fence", queue="q", item=leases[0].item, token=leases[0].token)
    items, tokens = [r.item for r in leases], [r.token for r in leases]
    one = a.start_call("eve_complete_batch", queue="q", items=items, tokens=tokens)
    a.until_waiting()
    two = b.start_call("eve_complete_batch", queue="q", items=items[::-1], tokens=tokens[::-1])
    b.until_waiting()
    f.execute("commit")
    first, second = both(one, two)
    assert {row.accepted for row in first + second} == {True}
    assert [row.item for row in second] == items[::-1]
    for item in items:
        assert desk.kinds(item) == ["admitted", "acquired", "completed"]


@pytest.mark.parametrize("verb", ["eve_complete_batch", "eve_turn"])
def test_batches_whose_children_cross(desk: Desk, session: Open, verb: str) -> None:
    desk.approve("cloud", 8)
    p = [desk.item(work_id=f"p{n}") for n in range(4)]
    leases = {row.item: row for row in desk.leases(4)}
    one = desk.item(work_id="c1", after=["p1", "p2"])
    two = desk.item(work_id="c2", after=["p0", "p3"])

    def start(caller: Session, places: tuple[int, int]) -> Future[list[Row]]:
        rows = [leases[p[place]] for place in places]
        worker = {"worker": "w", "pool": "local"} if verb == "eve_turn" else {}
        return caller.start_call(
            verb, queue="q", items=[r.item for r in rows], tokens=[r.token for r in rows], **worker
        )

    a, b = session("t_worker"), session("t_worker")
    f = blocker(session, "work_item", p[1])
    first = start(a, (0, 1))
    a.until_waiting()
    second = start(b, (2, 3))
    b.until_waiting()
    f.execute("rollback")
    both(first, second)
    assert (desk.phase(one), desk.phase(two)) == ("ready", "ready") or verb == "eve_turn"


def test_a_parent_and_a_decision_of_the_same_child(desk: Desk, session: Open) -> None:
    desk.item(work_id="parent")
    lease = desk.lease()
    asked = desk.call("t_operator", "eve_propose", kind="approval")
    child = desk.item(after=["parent"], decision=asked.decision)
    assert desk.holds(child) == ["awaiting_decision", "dependency_not_ready"]
    f = blocker(session, "hold", child, "and reason = 'awaiting_decision'")
    human, worker = session("t_human"), session("t_worker")
    one = human.start_call("eve_accept", queue="q", decision=asked.decision)
    human.until_waiting()
    two = worker.start_call("eve_complete", queue="q", item=lease.item, token=lease.token)
    worker.until_waiting()
    f.execute("rollback")
    both(one, two)
    assert desk.phase(child) == "ready"


def test_a_parent_and_a_waiver_of_its_edge(desk: Desk, session: Open) -> None:
    desk.item(work_id="parent")
    lease = desk.lease()
    child = desk.item(after=["parent"])
    asked = desk.call("t_operator", "eve_propose", kind="waiver", item=child, work_id="parent")
    f = blocker(session, "hold", child)
    human, worker = session("t_human"), session("t_worker")
    one = human.start_call("eve_accept", queue="q", decision=asked.decision)
    human.until_waiting()
    two = worker.start_call("eve_complete", queue="q", item=lease.item, token=lease.token)
    worker.until_waiting()
    f.execute("rollback")
    both(one, two)
    assert desk.phase(child) == "ready"


def test_a_name_that_becomes_known_and_a_waiver_of_its_edge(desk: Desk, session: Open) -> None:
    child = desk.item(after=["parent"])
    asked = desk.call("t_operator", "eve_propose", kind="waiver", item=child, work_id="parent")
    f = blocker(session, "hold", child)
    human, producer = session("t_human"), session("t_producer")
    one = human.start_call("eve_accept", queue="q", decision=asked.decision)
    human.until_waiting()
    two = producer.start_call("eve_submit", queue="q", work_id="parent")
    producer.until_waiting()
    f.execute("rollback")
    both(one, two)
    assert desk.phase(child) == "ready"


@pytest.mark.parametrize("verb", ["eve_cancel", "eve_reject"])
def test_an_act_that_waited_for_a_take_and_the_completion_of_it(
    desk: Desk, session: Open, verb: str
) -> None:
    """The act must go for the lease row before it has locked the item."""
    desk.approve("cloud", 16)
    taker, act, holder = session("t_worker"), session("t_human"), session("t_worker")
    f = session("postgres")
    for _ in range(16):
        item = desk.item()
        taker.execute("begin")
        lease = taker.call("eve_acquire", queue="q", worker="w")
        f.execute("begin")
        held = f.start("select 1 from eve.work_item where item = %s for update", [item])
        f.until_waiting()
        acted = act.start_call(verb, queue="q", item=item, reason="no")
        act.until_waiting()
        taker.execute("commit")
        until(lambda p=(held, acted): act.waiting() or (p[0].done() and p[1].done()), "either")  # type: ignore[misc]
        if acted.done() or not held.done():  # the act was faster than the superuser: once more
            f.execute("rollback")
            acted.result(PATIENCE)
            continue
        finished = holder.start_call("eve_complete", queue="q", item=item, token=lease.token)
        holder.until_waiting()
        f.execute("rollback")
        ended: list[str] = []
        for one in (acted, finished):
            try:
                one.result(PATIENCE)
            except psycopg.Error as error:
                ended.append(str(error.sqlstate))
        assert ended in ([], ["VE301"], ["55000"])
        assert desk.phase(item) in ("cancelled", "rejected", "verified")
        return
    raise AssertionError("the act was always faster")


def test_a_crowd_on_a_graph_never_deadlocks(desk: Desk) -> None:
    """Every verb that takes several rows, at READ COMMITTED, on items that wait for each other."""
    desk.clock.release()
    desk.approve("cloud", 12)
    number = scaled(60)
    chance = random.Random(7)
    for n in range(number):
        names = [f"i{m}" for m in chance.sample(range(number), 3) if m < n]
        kind = "after" if chance.random() < 0.7 else "after_ended"
        desk.item(work_id=f"i{n}", **{kind: names})
    steps = scaled(30)

    def worker(dice: random.Random) -> None:
        connection = desk.db.connect("t_worker")
        mine: list[Row] = []
        for _ in range(steps):
            dice.shuffle(mine)
            items, tokens = [r.item for r in mine], [r.token for r in mine]
            rows = call(
                connection, "eve_turn", queue="q", worker="w", max_items=dice.randint(1, 4),
                items=items, tokens=tokens,
            )  # fmt: skip
            mine = [row for row in rows if row.part == "acquire" and row.granted]
        for row in mine:
            call(connection, "eve_complete_batch", queue="q", items=[row.item], tokens=[row.token])

    def late(dice: random.Random) -> None:
        connection = desk.db.connect("t_producer")
        for n in range(steps):
            names = [f"i{m}" for m in dice.sample(range(number), 2)] + [f"n{n + 1}"]
            call(connection, "eve_submit", queue="q", work_id=f"n{n}", after=names)

    def human(dice: random.Random) -> None:
        connection = desk.db.connect("t_human")
        for n in range(steps):
            work_id = f"i{dice.randrange(number)}"
            if dice.random() < 0.3:
                call(connection, "eve_cancel", queue="q", work_id=work_id)
            elif desk.db.rows(
                "select 1 from eve.intent where queue_id = %s and work_id = %s", [desk.id, f"n{n}"]
            ):
                item = call(connection, "eve_item", queue="q", work_id=f"n{n}")[0].item
                asked = call(
                    connection, "eve_propose", queue="q", kind="waiver", item=item,
                    work_id=f"n{n + 1}",
                )  # fmt: skip
                call(connection, "eve_accept", queue="q", decision=asked[0].decision)

    def sweeper(_: random.Random) -> None:
        connection = desk.db.connect("t_operator")
        for _step in range(steps):
            assert call(connection, "eve_sweep", queue="q")[0].faults == []

    rush([worker, worker, worker, late, human, sweeper])
