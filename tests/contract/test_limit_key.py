"""Limit keys: as many items of one key as the class allows are ready or leased, the others wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from support.database import Row
from support.desk import Desk

SAFE = {"preset": "job", "replay_class": "safe"}
LIMITED = {**SAFE, "limit_per_key": 2, "backoff_base": "10 s", "backoff_jitter": 0, "attempts": 5}


@pytest.fixture
def limited(desk: Desk) -> Desk:
    desk.approve("cloud", 8)
    desk.define("default", **LIMITED)
    return desk


def live(desk: Desk, key: str = "k") -> list[int]:
    """The items of a key that are ready or leased."""
    rows = desk.db.rows(
        "select i.item from eve.intent as i"
        " join eve.work_item as w on w.queue_id = i.queue_id and w.item = i.item"
        " where i.queue_id = %s and i.limit_key = %s"
        " and (w.queue_state).phase in ('ready', 'leased') order by 1",
        [desk.id, key],
    )
    return [row.item for row in rows]


def keys(desk: Desk) -> list[tuple[Any, ...]]:
    """Each key with its tickets, its surplus, its free tickets and its calls."""
    rows = desk.db.rows(
        "select k.key, k.tickets, k.surplus,"
        " (select count(*) from eve.key_ticket as t where t.queue_id = k.queue_id"
        "     and t.class_id = k.class_id and t.key = k.key),"
        " (select count(*) from eve.key_call as t where t.queue_id = k.queue_id"
        "     and t.class_id = k.class_id and t.key = k.key)"
        " from eve.key_limit as k where k.queue_id = %s order by 1",
        [desk.id],
    )
    return [tuple(row) for row in rows]


def some(desk: Desk, number: int, **arguments: Any) -> list[int]:
    return [desk.item(**{"limit_key": "k", **arguments}) for _ in range(number)]


def turn(desk: Desk) -> None:
    """An acquisition that takes nothing: it answers the calls."""
    desk.call("t_worker", "eve_turn", worker="w", pool="local", classes=["other"])


@pytest.fixture
def aside(limited: Desk) -> Desk:
    limited.define("other", **SAFE)
    return limited


# Admission


def test_one_over_the_limit_is_held_and_says_for_which_key(limited: Desk) -> None:
    first = some(limited, 2)
    answer = limited.submit(limit_key="k")
    assert (answer.decision, answer.reason, answer.phase) == ("HOLD", "key_saturated", "held")
    hold = limited.db.row(
        "select h.trigger, h.ref, h.owner, h.rank, h.place from eve.hold as h"
        " where queue_id = %s and item = %s",
        [limited.id, answer.item],
    )
    submitted = limited.events(answer.item)[0].at
    assert tuple(hold) == ("key", "k", "queue", 2, submitted)
    assert live(limited) == first
    assert keys(limited) == [("k", 2, 0, 0, 0)]


def test_neighbours_flow(aside: Desk) -> None:
    """Another key, no key, and the same key of another class."""
    aside.define("third", **SAFE, limit_per_key=1)
    some(aside, 4)
    assert aside.submit(limit_key="l").decision == "ADMIT"
    assert aside.submit().decision == "ADMIT"
    assert aside.submit(limit_key="k", **{"class": "third"}).decision == "ADMIT"
    assert aside.submit(limit_key="k", **{"class": "third"}).decision == "HOLD"
    assert {aside.submit(limit_key="k", **{"class": "other"}).decision for _ in range(5)} == {
        "ADMIT"
    }


def test_a_class_that_does_not_limit_keeps_no_tickets(desk: Desk) -> None:
    assert {desk.submit(limit_key="k").decision for _ in range(5)} == {"ADMIT"}
    assert keys(desk) == []
    assert desk.db.value("select limited from eve.queue where queue_id = %s", [desk.id]) is False


def test_a_named_acquisition_is_told_of_the_saturated_key(limited: Desk) -> None:
    some(limited, 2)
    waiting = limited.item(limit_key="k")
    answer = limited.acquire(item=waiting, pool="cloud")
    assert answer.refusal == "concurrency_exhausted"
    assert answer.detail["saturated"] == 'limit key "k" is saturated'
    (why,) = limited.calls("t_worker", "eve_explain", item=waiting)
    assert "key_saturated" in why
    assert 'Limit key "k" has 2 leases; it is released when one ends.' in why


def test_an_item_held_for_something_else_takes_no_ticket_yet(limited: Desk) -> None:
    later = limited.clock.now() + timedelta(seconds=60)
    early = limited.item(limit_key="k", not_before=later)
    assert keys(limited) == []
    some(limited, 2)
    limited.clock.set(later)
    limited.sweep()
    assert limited.holds(early) == ["key_saturated"]
    limited.complete(limited.lease(pool="cloud"))
    limited.sweep()
    assert limited.phase(early) == "ready"
    assert limited.state(early).ready_since == later


# Passing on


def test_an_end_gives_the_ticket_to_the_best_that_waits(limited: Desk) -> None:
    first, second = some(limited, 2)
    late, urgent = some(limited, 1)[0], some(limited, 1, priority_class=0)[0]
    last = some(limited, 1)[0]
    order = []
    for _ in range(5):
        lease = limited.lease(pool="cloud")
        order.append(lease.item)
        limited.complete(lease)
    assert order == [first, urgent, second, late, last]
    assert limited.state(late).late
    assert limited.kinds(late)[:3] == ["held", "released", "acquired"]
    assert limited.events(late)[1].reason == "key k"


def test_one_turn_ends_one_and_leases_the_next(limited: Desk) -> None:
    items = some(limited, 5)
    lease = limited.lease(pool="cloud")
    limited.lease(pool="cloud")
    rows = limited.calls(
        "t_worker", "eve_turn", worker="w", items=[lease.item], tokens=[lease.token], pool="cloud"
    )
    assert [row.part for row in rows] == ["finish", "acquire"]
    assert rows[1].item == items[2]


def test_who_waits_keeps_its_place_among_its_neighbours(limited: Desk) -> None:
    some(limited, 2)
    limited.clock.advance(1)
    waiting = some(limited, 1)[0]
    limited.clock.advance(1)
    neighbour = limited.item()
    leases = limited.leases(2, pool="cloud")
    limited.complete(leases[0])
    assert [limited.lease(pool="cloud").item for _ in range(2)] == [waiting, neighbour]


def test_a_reprioritised_one_waits_at_its_new_rank(limited: Desk) -> None:
    some(limited, 2)
    first, second = some(limited, 2)
    limited.call("t_operator", "eve_reprioritise", item=second, priority_class=0)
    limited.complete(limited.lease(pool="cloud"))
    limited.sweep()
    assert (limited.phase(first), limited.phase(second)) == ("held", "ready")


def test_what_waited_too_long_is_passed_over(limited: Desk) -> None:
    some(limited, 2)
    soon = limited.clock.now() + timedelta(seconds=30)
    hopeless = limited.item(limit_key="k", value_until=soon)
    other = limited.item(limit_key="k")
    limited.clock.advance(31)
    leases = limited.leases(2, pool="cloud")
    limited.complete(leases[0])
    assert limited.lease(pool="cloud").item == other
    assert limited.phase(hopeless) == "expired"


def test_nobody_waits_and_the_ticket_is_free(limited: Desk) -> None:
    some(limited, 2)
    waiting = some(limited, 1)[0]
    limited.complete(limited.lease(pool="cloud"))
    assert keys(limited) == [("k", 2, 0, 0, 1)]
    limited.call("t_operator", "eve_cancel", item=waiting)
    limited.complete(limited.lease(pool="cloud"))
    limited.acquire(pool="cloud")
    assert keys(limited) == [("k", 2, 0, 2, 0)]
    limited.sweep()
    assert keys(limited) == []


# Ways out of ready and leased, and back


def ends(desk: Desk, how: str, lease: Row) -> None:
    item = lease.item
    if how == "complete":
        desk.complete(lease)
    elif how == "cancel":
        desk.call("t_operator", "eve_cancel", item=item)
    elif how == "reject":
        desk.call("t_human", "eve_reject", item=item, reason="no")
    elif how == "backoff":
        desk.hold("eve_fail", lease, disposition="retry")
    elif how == "dead":
        desk.hold("eve_fail", lease, disposition="dead", error="broken")
    elif how == "uncertain":
        desk.hold("eve_fail", lease, disposition="uncertain")
    elif how == "until":
        desk.hold("eve_return", lease, until=desk.clock.now() + timedelta(seconds=99))
    else:
        raise AssertionError(how)


@pytest.mark.parametrize(
    "how", ["complete", "reject", "backoff", "dead", "uncertain", "until"]
)  # fmt: skip
def test_the_ticket_of_a_lease_that_ends_is_passed_on(aside: Desk, how: str) -> None:
    items = some(aside, 3)
    ends(aside, how, aside.lease(item=items[0], pool="cloud"))
    turn(aside)
    assert live(aside) == items[1:]


def test_a_cancelled_or_expired_ready_item_passes_its_ticket_on(aside: Desk) -> None:
    soon = aside.clock.now() + timedelta(seconds=30)
    first, second, third = some(aside, 1)[0], some(aside, 1, deadline=soon)[0], some(aside, 1)[0]
    fourth = some(aside, 1)[0]
    aside.call("t_operator", "eve_cancel", item=first)
    turn(aside)
    assert live(aside) == [second, third]
    aside.clock.set(soon)
    aside.sweep()
    assert (live(aside), aside.phase(second)) == ([third, fourth], "expired")


@pytest.mark.parametrize("how", ["return", "lapse", "at once"])
def test_one_that_runs_again_keeps_its_ticket(aside: Desk, how: str) -> None:
    if how == "at once":
        aside.define("default", **{**LIMITED, "backoff_base": "0 s"})
    items = some(aside, 3)
    lease = aside.lease(item=items[0], pool="cloud")
    if how == "return":
        aside.hold("eve_return", lease)
    elif how == "lapse":
        aside.lapse(lease)
        aside.sweep()
    else:
        assert aside.hold("eve_fail", lease, disposition="retry").phase == "ready"
    turn(aside)
    assert live(aside) == items[:2]


def again(desk: Desk, how: str, item: int) -> None:
    if how == "dead":
        desk.call("t_human", "eve_unpark", item=item)
    elif how == "uncertain":
        desk.call("t_verifier", "eve_reconcile", item=item, finding="absent")
    else:
        desk.clock.advance(100)
        desk.sweep()


@pytest.mark.parametrize("how", ["dead", "uncertain", "backoff", "until"])
@pytest.mark.parametrize("saturated", [True, False])
def test_one_that_comes_back_needs_a_ticket(aside: Desk, how: str, saturated: bool) -> None:
    items = some(aside, 3 if saturated else 2)
    ends(aside, how, aside.lease(item=items[0], pool="cloud"))
    turn(aside)
    again(aside, how, items[0])
    if not saturated:
        assert live(aside) == items
        return
    assert aside.holds(items[0]) == ["key_saturated"]
    assert live(aside) == items[1:]
    aside.call("t_operator", "eve_cancel", item=items[1])
    turn(aside)
    assert live(aside) == [items[0], items[2]]
    assert aside.lease(item=items[0], pool="cloud").attempt == 2


@pytest.mark.parametrize("saturated", [True, False])
def test_reconciled_and_wanted_by_nobody(aside: Desk, saturated: bool) -> None:
    items = some(aside, 3 if saturated else 2)
    ends(aside, "uncertain", aside.lease(item=items[0], pool="cloud"))
    aside.call("t_operator", "eve_cancel", item=items[0])
    turn(aside)
    assert live(aside) == items[1:]
    answer = aside.call("t_verifier", "eve_reconcile", item=items[0], finding="absent")
    assert answer.phase == "cancelled"
    turn(aside)
    assert live(aside) == items[1:]


def test_a_parent_that_is_verified_lets_its_child_have_a_ticket_or_wait(aside: Desk) -> None:
    parent = aside.item(work_id="p")
    child = aside.item(limit_key="k", after=["p"])
    some(aside, 2)
    aside.complete(aside.lease(item=parent, pool="cloud"))
    assert aside.holds(child) == ["key_saturated"]


# Another limit


def test_a_limit_that_grows_lets_more_run(aside: Desk) -> None:
    items = some(aside, 5)
    aside.define("default", **{**LIMITED, "limit_per_key": 4})
    turn(aside)
    assert live(aside) == items[:4]
    assert keys(aside) == [("k", 4, 0, 0, 0)]
    aside.define("default", **{**LIMITED, "limit_per_key": 7})
    turn(aside)
    assert live(aside) == items
    assert keys(aside) == [("k", 7, 0, 2, 0)]


def test_a_limit_that_shrinks_ends_no_lease_and_lets_none_begin(aside: Desk) -> None:
    aside.define("default", **{**LIMITED, "limit_per_key": 4})
    items = some(aside, 5)
    aside.define("default", **{**LIMITED, "limit_per_key": 1})
    assert live(aside) == items[:4]
    assert keys(aside) == [("k", 1, 3, 0, 0)]
    for item in items[:3]:
        aside.call("t_operator", "eve_cancel", item=item)
        turn(aside)
    assert live(aside) == [items[3]]
    aside.define("default", **{**LIMITED, "limit_per_key": 2})
    turn(aside)
    assert live(aside) == items[3:]


def test_free_tickets_of_a_limit_that_shrinks_go_at_once(aside: Desk) -> None:
    aside.define("default", **{**LIMITED, "limit_per_key": 4})
    some(aside, 1)
    aside.define("default", **{**LIMITED, "limit_per_key": 2})
    assert keys(aside) == [("k", 2, 0, 1, 0)]


def test_a_limit_that_is_taken_back_holds_for_what_was_admitted_under_it(aside: Desk) -> None:
    items = some(aside, 4)
    aside.define("default", **SAFE)
    assert {aside.submit(limit_key="k").decision for _ in range(3)} == {"ADMIT"}
    assert aside.holds(items[2]) == ["key_saturated"]
    aside.call("t_operator", "eve_cancel", item=items[0])
    turn(aside)
    assert (aside.phase(items[2]), aside.phase(items[3])) == ("ready", "held")


# Repair


def test_a_rebuild_makes_the_tickets_anew(aside: Desk) -> None:
    items = some(aside, 4)
    other = some(aside, 1, limit_key="l")
    aside.lease(item=items[0], pool="cloud")
    before = keys(aside)
    assert aside.call("t_operator", "eve_rebuild").clean
    assert keys(aside) == before
    place = "select place, rank, class_id from eve.hold where queue_id = %s and item = %s"
    hold = aside.db.row(place, [aside.id, items[2]])
    assert (hold.rank, hold.place) == (2, aside.events(items[2])[0].at)
    aside.call("t_operator", "eve_cancel", item=items[1])
    turn(aside)
    assert live(aside) == [items[0], items[2]]
    assert live(aside, "l") == other


@pytest.mark.parametrize(
    "damage",
    [
        "delete from eve.key_limit where queue_id = %s",
        "insert into eve.key_ticket (queue_id, class_id, key) select queue_id, class_id, key"
        " from eve.key_limit where queue_id = %s",
        "update eve.key_limit set tickets = tickets + 1 where queue_id = %s",
    ],
)
def test_tickets_that_do_not_account_for_what_runs_are_a_fault(limited: Desk, damage: str) -> None:
    some(limited, 3)
    limited.spoiled = True
    limited.db.rows(damage, [limited.id])
    audit = limited.audit()
    assert (audit.clean, audit.slots) == (False, "off")
    assert audit.faults[0]["fault"] == "limit"
    assert limited.call("t_operator", "eve_rebuild").clean


BY_CALLS: list[Callable[[Desk], Any]] = [turn, Desk.sweep]


@pytest.mark.parametrize("by", BY_CALLS)
def test_who_missed_the_end_is_found_by_the_second_look(
    aside: Desk, by: Callable[[Desk], Any]
) -> None:
    """A ticket that was put back unseen: free, though somebody waits."""
    items = some(aside, 3)
    aside.call("t_operator", "eve_cancel", item=items[0])
    aside.db.rows(
        "with c as (delete from eve.key_call where queue_id = %s returning *)"
        " insert into eve.key_ticket (queue_id, class_id, key)"
        " select queue_id, class_id, key from c",
        [aside.id],
    )
    for _ in range(3):
        aside.clock.advance(2)
        by(aside)
    assert live(aside) == items[1:]
