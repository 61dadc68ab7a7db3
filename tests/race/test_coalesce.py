"""Requests with one key at once: one waits for it, whoever comes for work waits for nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from support.desk import Desk
from support.race import LEVELS, attempt, only, rush, scaled
from support.session import PATIENCE, Session

Open = Callable[[str], Session]
ASK: dict[str, Any] = {"queue": "q", "class": "fresh", "coalescing_key": "k"}
RULES = ["absorb", "replace"]


def define(desk: Desk, rule: str) -> None:
    desk.define("fresh", replay_class="safe", coalesce=rule, backoff_base="0 s")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_of_two_first_requests_the_second_waits_for_the_first(
    desk: Desk, session: Open, rule: str, end: str
) -> None:
    define(desk, rule)
    a, b = session("t_producer"), session("t_producer")
    a.execute("begin")
    first = a.call("eve_submit", **ASK)
    pending = b.start_call("eve_submit", **ASK)
    b.until_waiting()
    a.execute(end)
    (second,) = pending.result(PATIENCE)
    if end == "rollback":
        assert second.decision == "ADMIT"
    elif rule == "absorb":
        assert (second.decision, second.survivor) == ("COALESCE", first.item)
    else:
        assert (second.decision, desk.phase(first.item)) == ("ADMIT", "coalesced")


@pytest.mark.parametrize("rule", RULES)
def test_an_open_merge_is_passed_by_whoever_comes_for_work(
    desk: Desk, session: Open, rule: str
) -> None:
    define(desk, rule)
    desk.item(**{"class": "fresh", "coalescing_key": "k"})
    other = desk.item()
    a, b = session("t_producer"), session("t_worker")
    a.execute("begin")
    a.call("eve_submit", **ASK)
    assert b.call("eve_acquire", queue="q", worker="w").item == other
    a.execute("commit")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_request_waits_for_a_take_and_is_not_merged_into_it(
    desk: Desk, session: Open, rule: str, end: str
) -> None:
    define(desk, rule)
    first = desk.item(**{"class": "fresh", "coalescing_key": "k"})
    a, b = session("t_worker"), session("t_producer")
    a.execute("begin")
    assert a.call("eve_acquire", queue="q", worker="w").item == first
    pending = b.start_call("eve_submit", **ASK)
    b.until_waiting()
    a.execute(end)
    (second,) = pending.result(PATIENCE)
    if end == "commit":
        assert (second.decision, desk.phase(first)) == ("ADMIT", "leased")
    elif rule == "absorb":
        assert second.survivor == first
    else:
        assert desk.phase(first) == "coalesced"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rule", RULES)
def test_at_any_level_one_waits_and_no_demand_is_lost(desk: Desk, level: str, rule: str) -> None:
    define(desk, rule)
    desk.approve("cloud", 4)
    over = threading.Event()
    left = [4]
    asked = scaled(25)

    def submitter(rnd: Random) -> None:
        connection = desk.db.connect("t_producer")
        try:
            for _ in range(asked):
                ask = {**ASK, "coalescing_key": rnd.choice("ab")}
                commit = rnd.random() < 0.8
                while not attempt(
                    connection, level, partial(only, connection, "eve_submit", **ask), commit=commit
                )[0]:
                    pass
        finally:
            left[0] -= 1
            if not left[0]:
                over.set()

    def worker(rnd: Random) -> None:
        connection = desk.db.connect("t_worker")

        def work() -> None:
            lease = only(connection, "eve_acquire", queue="q", worker="w")
            if lease.granted:
                only(connection, "eve_complete", queue="q", item=lease.item, token=lease.token)

        while not over.is_set():
            attempt(connection, level, work, commit=rnd.random() < 0.9)

    rush([submitter] * 4 + [worker] * 2, over)
    waiting = desk.db.rows(
        "select i.coalescing_key, count(*) from eve.work_item as w join eve.intent as i"
        " using (queue_id, item) where queue_id = %s and i.coalesces"
        " and (w.queue_state).phase in ('held', 'ready') group by 1",
        [desk.id],
    )
    assert all(row.count == 1 for row in waiting)
    lost = desk.db.value(
        "select count(*) from eve.submission as s where s.queue_id = %s and s.decision = 'COALESCE'"
        " and not exists (select from eve.ledger as l where l.queue_id = s.queue_id"
        " and l.kind = 'absorbed'"
        " and (l.data #>> '{represents,submission}')::bigint = s.submission)",
        [desk.id],
    )
    assert lost == 0
