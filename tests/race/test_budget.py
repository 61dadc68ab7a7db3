"""Budgets under many submitters: strict ones never exceeded, striped ones by those in flight."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from support.desk import Desk
from support.race import LEVELS, attempt, begin, only, rush, scaled
from support.session import PATIENCE, Session

Open = Callable[[str], Session]
SUBMITTERS, LIMIT = 16, 20


def stored(desk: Desk) -> tuple[int, int]:
    row = desk.db.row(
        "select count(*) as items, coalesce(sum(w.size), 0) as bytes from eve.work_item as w"
        " where w.queue_id = %s and w.item > 0 and eve._live((w.queue_state).phase)",
        [desk.id],
    )
    return int(row.items), int(row.bytes)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "limits",
    [{"item_limit": LIMIT}, {"byte_limit": LIMIT * 10}, {"shared_item_limit": LIMIT},
     {"shared_byte_limit": LIMIT * 10}],
    ids=lambda limits: next(iter(limits)),
)  # fmt: skip
def test_a_strict_budget_is_never_exceeded_by_sixteen_submitters(
    desk: Desk, level: str, limits: dict[str, Any]
) -> None:
    """With rollbacks among them, and a worker that makes room as they go."""
    desk.define(replay_class="safe", budget_mode="strict", **limits)
    most_items = LIMIT if "item_limit" in next(iter(limits)) else 10**9
    most_bytes = LIMIT * 10 if "byte_limit" in next(iter(limits)) else 10**9
    over = threading.Event()
    left = [SUBMITTERS]
    seen: list[tuple[int, int]] = []

    def submitter(rnd: Random) -> None:
        connection = desk.db.connect("t_producer")
        try:
            for _ in range(scaled(4)):
                ask = partial(only, connection, "eve_submit", queue="q", payload={"n": 1})
                commit = rnd.random() < 0.8
                while not attempt(connection, level, ask, commit=commit)[0]:
                    pass
        finally:
            left[0] -= 1
            if not left[0]:
                over.set()

    def worker(rnd: Random) -> None:
        connection = desk.db.connect("t_worker")
        watch = desk.db.connect("postgres")
        query = (
            "select count(*), coalesce(sum(w.size), 0) from eve.work_item as w where w.queue_id ="
            " (select queue_id from eve.queue where name = 'q') and w.item > 0"
            " and eve._live((w.queue_state).phase)"
        )
        while not over.is_set():
            row = watch.execute(query).fetchone()
            assert row is not None
            seen.append((int(row[0]), int(row[1])))
            if rnd.random() < 0.3:
                lease = only(connection, "eve_acquire", queue="q", worker="w")
                if lease.granted:
                    only(connection, "eve_complete", queue="q", item=lease.item,
                         token=lease.token)  # fmt: skip

    rush([submitter] * SUBMITTERS + [worker], over)
    seen.append(stored(desk))
    assert max(items for items, _ in seen) <= most_items
    assert max(size for _, size in seen) <= most_bytes
    full = desk.submit(payload={"n": 1})
    while full.decision == "ADMIT":
        full = desk.submit(payload={"n": 1})
    items, size = stored(desk)
    assert items == most_items or size + 8 > most_bytes


def test_a_striped_budget_is_exceeded_by_those_in_flight_at_most(desk: Desk) -> None:
    desk.define(replay_class="safe", budget_mode="striped", item_limit=5)
    for _ in range(4):
        desk.item()
    open_ones = [desk.db.connect("t_producer") for _ in range(SUBMITTERS)]
    for connection in open_ones:
        begin(connection, "read committed")
        assert only(connection, "eve_submit", queue="q").decision == "ADMIT"
    for connection in open_ones:
        connection.execute("commit")
    items, _ = stored(desk)
    assert items == 4 + SUBMITTERS  # the limit, and those that saw nothing of each other but one
    assert items <= 5 - 1 + SUBMITTERS
    assert desk.submit().reason == "item_budget_exhausted"


def test_finishing_waits_for_no_open_submission(desk: Desk, session: Open) -> None:
    desk.define(replay_class="safe", budget_mode="strict", item_limit=5, shared_item_limit=9)
    lease = desk.lease(item=desk.item())
    a, b = session("t_producer"), session("t_worker")
    a.execute("begin")
    a.call("eve_submit", queue="q")
    done = b.call("eve_complete", queue="q", item=lease.item, token=lease.token)
    assert done.phase == "verified"
    c = session("t_producer")
    pending = c.start_call("eve_submit", queue="q")
    c.until_waiting()  # submissions take turns
    a.execute("commit")
    assert pending.result(PATIENCE)[0].decision == "ADMIT"


@pytest.mark.parametrize("level", LEVELS)
def test_a_dependency_is_never_leased_beyond_its_capacity(desk: Desk, level: str) -> None:
    desk.approve("cloud", 8)
    desk.define(replay_class="safe", dependencies=["mail"])
    desk.call("t_operator", "eve_set_health", dependency="mail", health="healthy", capacity=2)
    for _ in range(scaled(40)):
        desk.item()
    most: list[int] = []

    def worker(_rnd: Random) -> None:
        connection = desk.db.connect("t_worker")
        idle = 0
        while idle < 20:
            take = partial(only, connection, "eve_acquire", queue="q", worker="w", pool="cloud")
            ok, lease = attempt(connection, level, take)
            if not ok or not lease.granted:
                idle += ok
                continue
            idle = 0
            most.append(desk_live())
            finish = partial(
                only, connection, "eve_complete", queue="q", item=lease.item, token=lease.token
            )
            while not attempt(connection, level, finish)[0]:
                pass

    watch = threading.Lock()
    watcher = desk.db.connect("postgres")
    queue_id = desk.id

    def desk_live() -> int:
        with watch:
            row = watcher.execute(
                "select count(*) from eve.held_slot where queue_id = %s", [queue_id]
            ).fetchone()
            assert row is not None
            return int(row[0])

    rush([worker] * 8)
    assert most
    assert max(most) <= 2
