"""Spend is reported by holders, summed over item and tree; over its limit a human decides."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from support.database import Row
from support.desk import Desk


@pytest.fixture
def limited(desk: Desk) -> Desk:
    desk.define("default", replay_class="safe", spend_limit=10, backoff_base="0 s")
    return desk


def over(desk: Desk, spend: int = 11) -> int:
    """An item that spent too much and was given back."""
    lease = desk.lease(item=desk.item())
    assert desk.hold("eve_renew", lease, spend=spend).detail["wrap_up"]
    desk.hold("eve_return", lease)
    return int(lease.item)


def asked(desk: Desk, item: int) -> Row:
    """The queue asks a human when the pick meets the item."""
    assert not desk.acquire().granted
    assert (desk.phase(item), desk.holds(item)) == ("held", ["awaiting_decision"])
    return desk.db.row(
        "select * from eve.decision where queue_id = %s and item = %s"
        " order by decision desc limit 1",
        [desk.id, item],
    )


def test_spend_adds_up_and_the_event_says_each_part(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    for part in ("0.10", "0.25", "0"):
        assert "wrap_up" not in desk.hold("eve_renew", lease, spend=part).detail
    desk.hold("eve_return", lease, spend="1")
    lease = desk.lease(item=lease.item)
    desk.hold("eve_fail", lease, spend="2")
    desk.clock.advance(3600)
    desk.complete(desk.lease(item=lease.item), spend="4.5")
    assert desk.call("t_auditor", "eve_item", item=lease.item).spent == Decimal("7.85")
    said = [e.data["spend"] for e in desk.events(lease.item) if e.data and "spend" in e.data]
    assert said == [0.10, 0.25, 0, 1, 2, 4.5]


def test_a_repeated_report_counts_once(limited: Desk) -> None:
    lease = limited.lease(item=limited.item())
    for _ in range(2):
        limited.hold("eve_renew", lease, spend=3, idempotency_key="k")
    limited.complete(lease, spend=4)
    assert limited.complete(lease, spend=4).replayed
    with limited.refused("idempotency_conflict"):
        limited.complete(lease, spend=5)
    assert limited.call("t_auditor", "eve_item", item=lease.item).spent == 7


def test_over_the_limit_the_holder_is_told_to_wrap_up(limited: Desk) -> None:
    lease = limited.lease(item=limited.item())
    assert "wrap_up" not in limited.hold("eve_renew", lease, spend=10).detail
    detail = limited.hold("eve_renew", lease, spend=1).detail
    assert detail.pop("version")
    assert detail == {
        "wrap_up": True, "scope": "item", "root": lease.item, "spent": 11, "limit": 10,
    }  # fmt: skip
    assert limited.complete(lease).phase == "verified"


def test_the_next_acquisition_is_refused_and_changes_nothing(limited: Desk) -> None:
    item = over(limited)
    before = limited.census()
    answer = limited.acquire(item=item)
    assert (answer.granted, answer.refusal) == (False, "spend_not_approved")
    assert answer.detail["spend"]["spent"] == 11
    after = limited.census()
    assert {t for t in after if after[t] != before[t]} <= {"tick", "probe", "mark", "slot_mark"}


def test_the_pick_passes_it_over_and_asks_a_human_once(limited: Desk) -> None:
    item, other = over(limited), limited.item()
    limited.call("t_operator", "eve_reprioritise", item=item, priority_class=0)
    assert limited.acquire().item == other
    decision = limited.db.row("select * from eve.decision where queue_id = %s", [limited.id])
    assert (decision.kind, decision.item, decision.phase) == ("spend", item, "open")
    assert decision.subject == {"scope": "item", "root": item, "spent": 11, "limit": 10,
                                "grant": 11, "asked_by": "queue"}  # fmt: skip
    assert limited.acquire(item=item).refusal == "spend_not_approved"
    assert limited.call("t_auditor", "eve_item", item=item).status == "needs_human"
    for _ in range(3):
        limited.acquire()
        limited.sweep()
    assert limited.kinds(0).count("decision_proposed") == 1


def test_a_human_grants_more(limited: Desk) -> None:
    item = over(limited)
    decision = asked(limited, item).decision
    with limited.refused("terminal_state_not_owned"):
        limited.call("t_operator", "eve_accept", decision=decision)
    for grant in (0, -1, "5", None, 1e30):
        with limited.refused("22023"):
            limited.call("t_human", "eve_accept", decision=decision, answer={"grant": grant})
    limited.call("t_human", "eve_accept", decision=decision, answer={"grant": 5})
    lease = limited.lease(item=item)
    assert "wrap_up" not in limited.hold("eve_renew", lease, spend=4).detail
    detail = limited.hold("eve_renew", lease, spend=1).detail
    assert (detail["spent"], detail["limit"]) == (16, 15)


def test_a_grant_that_is_not_said_is_the_one_proposed(limited: Desk) -> None:
    item = over(limited)
    limited.call("t_human", "eve_accept", decision=asked(limited, item).decision)
    lease = limited.lease(item=item)
    assert "wrap_up" not in limited.hold("eve_renew", lease, spend=10).detail
    assert limited.hold("eve_renew", lease, spend=1).detail["limit"] == 21


def test_a_grant_that_is_too_small_is_asked_again(limited: Desk) -> None:
    item = over(limited, 30)
    first = asked(limited, item).decision
    limited.call("t_human", "eve_accept", decision=first, answer={"grant": 5})
    assert asked(limited, item).decision > first


def test_a_declined_grant_quarantines(limited: Desk) -> None:
    item = over(limited)
    limited.call("t_human", "eve_decline", decision=asked(limited, item).decision)
    assert limited.phase(item) == "quarantined"
    assert limited.events(item)[-1].data["quarantine"]["reason"] == "spend declined"
    limited.call("t_human", "eve_unpark", item=item)
    assert asked(limited, item).phase == "open"


def tree(desk: Desk, **policy: Any) -> tuple[Row, list[Row]]:
    desk.define("default", replay_class="safe", backoff_base="0 s", **policy)
    desk.approve("cloud", 5)
    root = desk.lease(item=desk.item())
    rows = []
    parent = root
    for _ in range(2):
        child = desk.call("t_worker", "eve_submit", under=f"({parent.item},{parent.token})").item
        parent = desk.lease(item=child)
        rows.append(parent)
    return root, rows


def test_spend_of_children_counts_against_the_tree(desk: Desk) -> None:
    root, (child, grandchild) = tree(desk, spend_tree_limit=10)
    assert "wrap_up" not in desk.hold("eve_renew", root, spend=4).detail
    assert "wrap_up" not in desk.hold("eve_renew", child, spend=4).detail
    detail = desk.hold("eve_renew", grandchild, spend=4).detail
    assert (detail["scope"], detail["root"], detail["spent"]) == ("tree", root.item, 12)
    assert desk.hold("eve_renew", root).detail["wrap_up"]
    desk.hold("eve_return", child)
    other = desk.item()
    assert desk.acquire(item=child.item).refusal == "spend_not_approved"
    assert desk.acquire().item == other
    decision = desk.db.row(
        "select * from eve.decision where queue_id = %s and item = %s", [desk.id, child.item]
    )
    desk.call("t_human", "eve_accept", decision=decision.decision, answer={"grant": 3})
    assert desk.lease().item == child.item
    assert "wrap_up" not in desk.hold("eve_renew", root).detail


def test_the_sums_are_rebuilt_and_audited(desk: Desk) -> None:
    root, _ = tree(desk, spend_tree_limit=3)
    desk.hold("eve_renew", root, spend=2)
    desk.db.rows("update eve.spend set amount = 1 where queue_id = %s", [desk.id])
    assert [fault["fault"] for fault in desk.audit().faults] == ["spend"]
    assert desk.call("t_operator", "eve_rebuild").clean
    assert desk.call("t_auditor", "eve_item", item=root.item).spent == 2


@pytest.mark.parametrize("spend", ["-1", "NaN", "Infinity", "1e18", "0.0000000000001"])
@pytest.mark.parametrize("verb", ["eve_renew", "eve_complete", "eve_fail", "eve_return"])
def test_a_spend_that_is_no_amount_is_refused(desk: Desk, verb: str, spend: str) -> None:
    lease = desk.lease(item=desk.item())
    with desk.refused("22023"):
        desk.hold(verb, lease, spend=spend)


def test_an_uncertain_item_is_not_asked_for(limited: Desk) -> None:
    """What is not known goes before what it costs."""
    lease = limited.lease(item=limited.item())
    limited.hold("eve_renew", lease, spend=11)
    limited.hold("eve_fail", lease, disposition="uncertain")
    assert not limited.acquire().granted
    assert "decision_proposed" not in limited.kinds(0)


def test_nobody_else_asks_for_the_queue(limited: Desk) -> None:
    """What a subject says does not make a proposal one of the queue's own."""
    item = over(limited)
    limited.approve("cloud", 1, default_pool=False)
    words = {"scope": "item", "root": item, "grant": 1000}
    spend = limited.call("t_worker", "eve_propose", kind="spend", pool="cloud", slots=2, item=item,
                         subject=words)  # fmt: skip
    limited.call("t_human", "eve_accept", decision=spend.decision)
    assert limited.acquire(item=item).refusal == "spend_not_approved"
    lease = limited.lease(item=limited.item())
    approval = limited.hold("eve_propose", lease, kind="approval", digest="0" * 64, subject=words)
    limited.hold("eve_return", lease, decision=approval.decision)
    limited.call("t_human", "eve_decline", decision=approval.decision)
    assert limited.phase(lease.item) == "ready"
