"""E-012 … E-018: one local lease, and elsewhere as many as a human approved."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from support.desk import Desk


def test_e_012_local_admits_one_live_lease(desk: Desk) -> None:
    """Across items, classes, workers and roles; the next one only when the first has ended."""
    desk.define("other", replay_class="safe")
    for name in ("default", "other", "default"):
        desk.item(**{"class": name})
    first = desk.calls("t_worker", "eve_acquire", worker="a", max_items=1000)
    assert [row.granted for row in first] == [True]
    assert desk.live() == 1
    for role in ("t_worker", "t_worker2"):
        assert not desk.acquire(role=role, worker="b").granted
        assert not desk.acquire(role=role, worker="b", classes=["other"]).granted
    desk.complete(first[0])
    assert desk.acquire(role="t_worker2").granted
    assert desk.live() == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_items": 1000},
        {"pool": "local"},
        {"pool": "local", "max_items": 2},
        {"ttl": "86400 s"},
        {"classes": ["default"]},
        {"worker": "another"},
        {"role": "t_worker2"},
        {"idempotency_key": "k"},
    ],
    ids=",".join,
)
def test_e_013_no_caller_raises_or_lowers_the_limit(desk: Desk, arguments: dict[str, Any]) -> None:
    items = [desk.item() for _ in range(3)]
    lease = desk.lease()
    assert desk.acquire(**arguments).refusal == "concurrency_exhausted"
    assert desk.acquire(item=items[1], **arguments).refusal == "concurrency_exhausted"
    desk.complete(lease)
    assert desk.acquire(**arguments).granted


def test_e_013_no_verb_and_no_row_changes_the_limit(desk: Desk) -> None:
    for slots in (0, 1, 2, 1024):
        with desk.refused("22023"):
            desk.approve("local", slots)
        with desk.refused("22023"):
            desk.call("t_operator", "eve_propose", kind="spend", pool="local", slots=slots)
        if slots != 1:
            with pytest.raises(psycopg.errors.CheckViolation) as refused:
                desk.db.rows("update eve.pool set slots = %s where pool = 'local'", [slots])
            assert refused.value.diag.constraint_name == "pool_local_has_one_slot"
    with desk.refused("42710"):
        desk.call("t_operator", "eve_define_pool", pool="local")


def test_e_014_a_second_acquisition_is_refused(desk: Desk) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    desk.item()
    second = desk.item()
    lease = desk.lease()
    for answer in (desk.acquire(), desk.acquire(item=second)):
        assert (answer.granted, answer.refusal) == (False, "concurrency_exhausted")
        assert answer.detail["slots"] == 1
        assert answer.next_at == lease.expires_at
        assert 1 <= answer.retry_after.total_seconds() <= 60
        assert answer.next


def test_e_015_a_pool_admits_what_a_human_accepted(desk: Desk) -> None:
    items = [desk.item() for _ in range(4)]
    desk.call("t_operator", "eve_define_pool", pool="cloud")
    assert desk.acquire(pool="cloud").refusal == "spend_not_approved"
    asked = desk.call("t_worker", "eve_propose", kind="spend", pool="cloud", slots=3)
    assert desk.acquire(pool="cloud", item=items[0]).refusal == "spend_not_approved"
    desk.call("t_human", "eve_accept", decision=asked.decision)
    desk.leases(3, pool="cloud")
    assert desk.live("cloud") == 3


def test_e_015_a_declined_spend_admits_nothing(desk: Desk) -> None:
    desk.item()
    desk.call("t_operator", "eve_define_pool", pool="cloud")
    asked = desk.call("t_operator", "eve_propose", kind="spend", pool="cloud", slots=3)
    desk.call("t_human", "eve_decline", decision=asked.decision)
    assert desk.acquire(pool="cloud").refusal == "spend_not_approved"
    with desk.refused("55000"):
        desk.call("t_human", "eve_accept", decision=asked.decision)


@pytest.mark.parametrize(
    "role", ["t_producer", "t_worker", "t_verifier", "t_operator", "t_auditor"]
)
def test_e_016_an_acceptance_of_no_human_does_not_count(desk: Desk, role: str) -> None:
    desk.item()
    desk.call("t_operator", "eve_define_pool", pool="cloud")
    asked = desk.call("t_operator", "eve_propose", kind="spend", pool="cloud", slots=3)
    with desk.refused("terminal_state_not_owned"):
        desk.call(role, "eve_accept", decision=asked.decision)
    with desk.refused("terminal_state_not_owned"):
        desk.call(role, "eve_approve_slots", pool="cloud", slots=3)
    assert desk.acquire(pool="cloud").refusal == "spend_not_approved"
    assert desk.db.value(
        "select phase from eve.decision where decision = %s", [asked.decision]
    ) == "open"  # fmt: skip


def test_e_016_slots_without_a_decision_cannot_be_stored(desk: Desk) -> None:
    desk.call("t_operator", "eve_define_pool", pool="cloud")
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        desk.db.rows("update eve.pool set slots = 3 where pool = 'cloud'")
    assert refused.value.diag.constraint_name == "pool_slots_need_a_decision"


def test_e_017_an_unapproved_pool_admits_not_even_one(desk: Desk) -> None:
    """And falls back neither to a smaller number nor to the free local slot."""
    item = desk.item()
    desk.call("t_operator", "eve_define_pool", pool="cloud")
    for answer in (
        desk.acquire(pool="cloud"),
        desk.acquire(pool="cloud", item=item),
        desk.acquire(pool="cloud", max_items=5),
    ):
        assert (answer.granted, answer.refusal) == (False, "spend_not_approved")
        assert answer.pool == "cloud"
    assert desk.live() == 0
    assert desk.kinds(item) == ["admitted"]
    assert desk.acquire().granted


def test_e_018_the_lease_beyond_n_is_refused(desk: Desk) -> None:
    desk.approve("cloud", 3)
    items = [desk.item() for _ in range(5)]
    leases = desk.leases(3)
    for answer in (desk.acquire(), desk.acquire(item=items[4]), desk.acquire(max_items=2)):
        assert (answer.granted, answer.refusal) == (False, "concurrency_exhausted")
        assert answer.detail["slots"] == 3
    desk.complete(leases[1])
    assert desk.acquire(max_items=1).granted
    assert desk.acquire().refusal == "concurrency_exhausted"
    assert desk.live("cloud") == 3


def test_e_018_a_batch_gets_no_more_than_there_are(desk: Desk) -> None:
    desk.approve("cloud", 3)
    for _ in range(5):
        desk.item()
    assert len(desk.calls("t_worker", "eve_acquire", worker="w", max_items=5)) == 3


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_e_018_a_shrunken_pool_admits_nothing_until_enough_leases_ended(
    desk: Desk, ended: int
) -> None:
    """Shrinking lets leases end and frees no slot, whichever of them ends first."""
    desk.approve("cloud", 3)
    for _ in range(6):
        desk.item()
    leases = desk.leases(3)
    desk.approve("cloud", 1)
    assert desk.acquire().refusal == "concurrency_exhausted"
    order = [leases[(ended + n) % 3] for n in range(3)]
    for lease in order[:2]:
        desk.complete(lease)
        assert desk.acquire().refusal == "concurrency_exhausted"
        assert desk.audit().clean
    desk.complete(order[2])
    assert desk.acquire(max_items=1).granted
    assert desk.acquire().refusal == "concurrency_exhausted"


def test_e_018_a_shrunken_pool_hands_no_slot_over(desk: Desk) -> None:
    desk.approve("cloud", 3)
    for _ in range(6):
        desk.item()
    leases = desk.leases(3)
    desk.approve("cloud", 1)
    for lease in leases[:2]:
        answers = desk.calls(
            "t_worker", "eve_turn", worker="w", items=[lease.item], tokens=[lease.token]
        )
        assert [(a.accepted, a.granted, a.refusal) for a in answers] == [
            (True, None, None),
            (None, False, "concurrency_exhausted"),
        ]
    answers = desk.calls(
        "t_worker", "eve_turn", worker="w", items=[leases[2].item], tokens=[leases[2].token]
    )
    assert answers[1].granted
    assert desk.live() == 1


@pytest.mark.parametrize("ended", [0, 1, 2, 3])
def test_a_pool_that_shrinks_and_grows_again_admits_exactly_n(desk: Desk, ended: int) -> None:
    desk.approve("cloud", 3)
    for _ in range(8):
        desk.item()
    leases = desk.leases(3)
    desk.approve("cloud", 1)
    for lease in leases[:ended]:
        desk.complete(lease)
    desk.approve("cloud", 4)
    assert len(desk.calls("t_worker", "eve_acquire", worker="w", max_items=8)) == 1 + ended
    assert desk.live("cloud") == 4
    desk.approve("cloud", 0)
    assert desk.acquire().refusal == "spend_not_approved"
