"""Contract §4 and §8: what a submission stores and what is decided; times, children, effects."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from support.database import Row
from support.desk import Desk, changed

T = "2031-06-01 12:00Z"


def under(lease: Row) -> str:
    return f"({lease.item},{lease.token})"


def test_the_whole_envelope_is_stored_and_derived_values_are_said(desk: Desk) -> None:
    desk.clock.set(T)
    given: dict[str, Any] = {
        "work_id": "w", "operation_identity": "export", "effect_identity": "package-31",
        "cancellation_identity": "order-7", "priority_class": 1,
        "requested_at": "2031-05-01 12:00Z",
        "not_before": "2031-06-02 12:00Z", "deadline": "2031-06-03 12:00Z",
        "minimum_completion_margin": "6 min", "value_until": "2031-06-04 12:00Z",
        "dependency_revisions": {"schema": "v3"}, "replay_class": "reconcilable",
        "completion_test": "effects", "expected_effects": ["a", "b"], "coalescing_key": "c",
        "limit_key": "l", "group_label": "g", "trace": "00-abc",
    }  # fmt: skip
    answer = desk.submit(payload={"n": 1}, **given)
    intent = desk.call("t_auditor", "eve_item", item=answer.item).intent
    same = {
        name: value for name, value in given.items()
        if not isinstance(value, str) or "Z" not in value
    }  # fmt: skip
    del same["minimum_completion_margin"]
    assert {name: intent[name] for name in same} == same
    assert intent["minimum_completion_margin"] == "00:06:00"
    for name in ("requested_at", "not_before", "deadline", "value_until"):
        assert desk.db.value(
            "select %s::timestamptz = %s::timestamptz", [intent[name], given[name]]
        )
    assert intent["derived"] == []
    plain = desk.call("t_auditor", "eve_item", item=desk.item(work_id="p")).intent
    assert set(plain["derived"]) == {
        "operation_identity", "effect_identity", "cancellation_identity", "requested_at",
        "replay_class", "completion_test",
    }  # fmt: skip
    assert (plain["operation_identity"], plain["effect_identity"]) == ("default", "default:p")
    assert (plain["replay_class"], plain["completion_test"]) == ("safe", "report")
    unnamed = desk.submit()
    assert unnamed.work_id == f"~{unnamed.item}"


def test_a_submission_commits_and_rolls_back_with_its_caller(desk: Desk) -> None:
    connection = desk.db.connect("t_producer", autocommit=False)
    before = desk.census()
    for arguments in ({"work_id": "a"}, {"deadline": "2001-01-01Z"}):
        connection.execute(
            "select eve_submit(%(queue)s, work_id => %(work_id)s, deadline => %(deadline)s)",
            {"queue": desk.queue, "work_id": None, "deadline": None, **arguments},
        )
    connection.rollback()
    assert changed(before, desk.census()) == []


@pytest.mark.parametrize(
    ("arguments", "decision", "reason"),
    [
        ({"deadline": "2031-06-01 12:00Z"}, "EXPIRE", "deadline_passed"),
        ({"deadline": "2031-06-01 12:05Z", "minimum_completion_margin": "5 min"}, "EXPIRE",
         "deadline_passed"),
        ({"deadline": "2031-06-01 13:00Z", "not_before": "2031-06-01 13:00Z"}, "EXPIRE",
         "deadline_passed"),
        ({"value_until": "2031-06-01 12:00Z"}, "EXPIRE", "value_window_ended"),
        ({"value_until": "2031-06-01 13:00Z", "not_before": "2031-06-01 14:00Z"}, "EXPIRE",
         "value_window_ended"),
        ({"payload": {"x": "y" * 2**20}}, "REJECT", "payload_too_large"),
        ({"work_id": "taken"}, "REJECT", "work_id_taken"),
    ],
)  # fmt: skip
def test_what_may_not_enter_leaves_a_record_and_no_item(
    desk: Desk, arguments: dict[str, Any], decision: str, reason: str
) -> None:
    """Identity, size, digest and evidence are kept; with must_admit it is raised instead."""
    desk.clock.set(T)
    desk.item(work_id="taken")
    before = desk.census()
    answer = desk.submit(**arguments)
    assert (answer.decision, answer.reason, answer.item) == (decision, reason, None)
    assert changed(before, desk.census()) == ["submission"]
    record = desk.db.row(
        "select * from eve.submission where queue_id = %s and submission = %s",
        [desk.id, answer.submission],
    )
    assert (record.decision, record.reason, record.principal) == (decision, reason, "t_producer")
    assert record.payload_size > 0
    assert len(record.payload_digest) == 32
    assert record.evidence["policy_revision"] == 1
    before = desk.census()
    with desk.refused("not_admitted") as refused:
        desk.submit(**arguments, must_admit=True)
    detail = desk.db.value("select %s::jsonb", [refused.error.diag.message_detail])
    assert (detail["decision"], detail["reason"]) == (decision, reason)
    assert changed(before, desk.census()) == []


def test_must_admit_takes_a_hold_for_an_admission(desk: Desk) -> None:
    """A held item is stored: no job is lost."""
    assert desk.submit(after=["later"], must_admit=True).decision == "HOLD"


def test_not_before_waits_for_its_instant_and_then_is_the_place_in_the_order(desk: Desk) -> None:
    start = desk.clock.set(T)
    answer = desk.submit(not_before="2031-06-01 13:00Z")
    assert (answer.decision, answer.reason) == ("HOLD", "not_before")
    assert desk.acquire(item=answer.item).refusal == "not_acquirable"
    assert desk.acquire().next_at == start + timedelta(hours=1)
    desk.clock.set("2031-06-01 13:30Z")
    later = desk.item()
    assert [desk.lease().item, later] == [answer.item, later]
    assert desk.state(answer.item).ready_since == start + timedelta(hours=1)


def test_a_not_before_in_the_past_is_ready_now(desk: Desk) -> None:
    assert desk.submit(not_before="2001-01-01Z").decision == "ADMIT"


@pytest.mark.parametrize("phase", ["ready", "held", "leased", "started", "reported"])
def test_the_sweep_after_a_deadline_ends_what_is_unfinished(desk: Desk, phase: str) -> None:
    """What may have had an effect becomes uncertain instead; a lease is superseded."""
    desk.clock.set(T)
    desk.define("out", preset="effect", replay_class="reconcilable", max_age="8 h", ttl="8 h")
    arguments: dict[str, Any] = {"deadline": "2031-06-01 13:00Z", "class": "out"}
    if phase == "held":
        arguments["after"] = ["never"]
    item = desk.item(**arguments)
    if phase in ("leased", "started", "reported"):
        lease = desk.lease(item=item)
    if phase in ("started", "reported"):
        desk.hold("eve_start_effect", lease)
    if phase == "reported":
        assert desk.complete(lease).phase == "reported"
    token = desk.state(item).token
    desk.clock.set("2031-06-01 12:59:59Z")
    assert desk.sweep().expired == 0
    desk.clock.set("2031-06-01 13:00Z")
    assert desk.sweep().expired == 1
    event = desk.events(item)[-1]
    after = "uncertain" if phase in ("started", "reported") else "expired"
    assert (event.kind, desk.phase(item)) == ("expired", after)
    if phase in ("leased", "started"):
        assert desk.state(item).token == token + 1
        with desk.refused("stale_fence"):
            desk.complete(lease)
    assert desk.live() == 0
    assert desk.sweep().expired == 0


def test_deadlines_are_housekeeping_too(desk: Desk) -> None:
    desk.clock.set(T)
    item = desk.item(deadline="2031-06-01 13:00Z", after=["never"])
    desk.clock.set("2031-06-01 13:00:02Z")
    assert not desk.acquire().granted
    assert desk.phase(item) == "expired"


def test_deadline_margin_and_value_window_are_checked_again_at_the_door(desk: Desk) -> None:
    """A named item is refused and untouched; the pick records the end and goes on."""
    desk.clock.set(T)
    margin = desk.item(deadline="2031-06-01 13:00Z", minimum_completion_margin="10 min")
    value = desk.item(value_until="2031-06-01 12:50Z")
    good = desk.item()
    desk.clock.set("2031-06-01 12:50Z")
    for item, why in ((margin, "deadline_passed"), (value, "value_window_ended")):
        refused = desk.acquire(item=item)
        assert (refused.refusal, refused.detail["blocked"]) == ("not_acquirable", why)
        assert desk.phase(item) == "ready"
    assert desk.lease().item == good
    assert [(desk.phase(i), desk.events(i)[-1].reason) for i in (margin, value)] == [
        ("expired", "deadline_passed"), ("expired", "value_window_ended"),
    ]  # fmt: skip


def test_a_pick_passes_over_at_most_sixteen(desk: Desk) -> None:
    desk.clock.set(T)
    condemned = [desk.item(value_until="2031-06-01 13:00Z") for _ in range(20)]
    good = desk.item()
    desk.clock.set("2031-06-01 13:00Z")
    assert not desk.acquire().granted
    assert [desk.phase(i) for i in condemned].count("expired") == 16
    assert desk.lease().item == good


def test_a_decision_is_awaited_before_the_first_attempt(desk: Desk) -> None:
    asked = desk.call("t_producer", "eve_propose", kind="approval", subject={"pay": 10})
    answer = desk.submit(decision=asked.decision)
    assert (answer.decision, answer.reason) == ("HOLD", "awaiting_decision")
    desk.call("t_human", "eve_accept", decision=asked.decision, answer={"by": "hand"})
    lease = desk.lease(item=answer.item)
    assert lease.answers[0]["data"] == {"by": "hand"}
    assert desk.submit(decision=asked.decision).decision == "ADMIT"


def test_a_protection_shorter_than_the_life_is_reported(desk: Desk) -> None:
    protection = {
        "scope": "payee", "retention": "1 day", "canonical_inputs": "all", "authority": "bank",
        "conflict_behaviour": "409", "after_retention": "reconcile",
    }  # fmt: skip
    desk.clock.set(T)
    desk.define("paid", replay_class="destination_protected", protection=protection)
    short = desk.submit(**{"class": "paid"}, deadline="2031-06-01 13:00Z")
    assert (short.decision, short.reason) == ("ADMIT", None)
    for arguments in ({}, {"deadline": "2031-06-05 12:00Z"}):
        long = desk.submit(**{"class": "paid"}, **arguments)
        assert (long.decision, long.reason) == ("ADMIT", "protection_shorter_than_life")


# --- children under a lease


def test_a_holder_submits_children_with_their_origin(desk: Desk) -> None:
    lease = desk.lease(item=desk.item(work_id="parent"))
    child = desk.call("t_worker", "eve_submit", under=under(lease), work_id="child")
    intent = desk.call("t_auditor", "eve_item", item=child.item).intent
    assert (intent["parent"], intent["depth"], intent["principal"]) == (lease.item, 1, "t_worker")
    parent = desk.call("t_auditor", "eve_item", item=lease.item).intent
    assert parent["depth"] == 0


@pytest.mark.parametrize("zombie", ["lapsed", "stale", "stranger", "finished", "nobody"])
def test_a_zombie_spawns_no_work(desk: Desk, zombie: str) -> None:
    lease = desk.lease(item=desk.item())
    role, parent = "t_worker", under(lease)
    if zombie == "lapsed":
        desk.lapse(lease)
    elif zombie == "stale":
        parent = f"({lease.item},{lease.token + 1})"
    elif zombie == "stranger":
        role = "t_worker2"
    elif zombie == "finished":
        desk.complete(lease)
    else:
        parent = f"({10**15},1)"
    answer = desk.call(role, "eve_submit", under=parent, work_id="child")
    assert (answer.decision, answer.reason, answer.item) == ("REJECT", "lease_not_live", None)
    with desk.refused("not_admitted"):
        desk.call(role, "eve_submit", under=parent, must_admit=True)


def test_depth_and_fan_out_are_bounded_by_the_class(desk: Desk) -> None:
    desk.define(replay_class="safe", child_depth=2, child_fan_out=3)
    desk.approve("cloud", 4)
    lease = desk.lease(item=desk.item())
    for _ in range(3):
        child = desk.call("t_worker", "eve_submit", under=under(lease))
        assert child.decision == "ADMIT"
    fourth = desk.call("t_worker", "eve_submit", under=under(lease))
    assert (fourth.decision, fourth.reason) == ("REJECT", "lineage_limit")
    second = desk.lease(item=child.item)
    grandchild = desk.call("t_worker", "eve_submit", under=under(second))
    assert grandchild.decision == "ADMIT"
    third = desk.lease(item=grandchild.item)
    deeper = desk.call("t_worker", "eve_submit", under=under(third))
    assert (deeper.decision, deeper.reason) == ("REJECT", "lineage_limit")


# --- effects and completion


def test_an_effect_class_completes_when_every_expected_effect_was_observed(desk: Desk) -> None:
    desk.define("out", preset="effect", replay_class="reconcilable")
    item = desk.item(**{"class": "out"}, expected_effects=["a", "b"])
    child = desk.item(after=[desk.call("t_auditor", "eve_item", item=item).work_id])
    lease = desk.lease(item=item)
    desk.hold("eve_start_effect", lease, effect_identity="a")
    desk.hold("eve_observe_effect", lease, effect_identity="a", evidence={"kind": "seen"})
    early = desk.complete(lease, result={"n": 1})
    assert (early.phase, early.missing) == ("reported", ["b"])
    assert desk.live() == 0
    assert desk.call("t_verifier", "eve_observe_effect", item=item, effect_identity="c").phase == (
        "reported"
    )
    assert desk.phase(child) == "held"
    with desk.refused("terminal_state_not_owned"):
        desk.call("t_worker", "eve_observe_effect", item=item, effect_identity="b")
    last = desk.call("t_verifier", "eve_observe_effect", item=item, effect_identity="b")
    assert (last.phase, desk.phase(item), desk.phase(child)) == ("verified", "verified", "ready")
    assert desk.kinds(item)[-2:] == ["effect_observed", "completed"]
    assert desk.call("t_auditor", "eve_item", item=item).result == {"n": 1}


def test_the_effect_of_an_item_is_the_one_expected_when_none_is_named(desk: Desk) -> None:
    desk.define("out", preset="effect", replay_class="reconcilable")
    lease = desk.lease(item=desk.item(**{"class": "out"}, effect_identity="package-31"))
    observed = desk.hold("eve_observe_effect", lease)
    assert observed.detail == {"effect": "package-31"}
    assert desk.complete(lease).phase == "verified"


def test_a_compensation_erases_nothing(desk: Desk) -> None:
    item = desk.done()
    before = desk.events(item)
    answer = desk.call(
        "t_verifier", "eve_compensate", item=item, effect_identity="refund", evidence={"kind": "n"}
    )
    assert (answer.phase, desk.phase(item)) == ("verified", "verified")
    assert desk.events(item)[: len(before)] == before
    for other in (desk.item(), desk.quarantined()):
        with desk.refused("55000"):
            desk.call("t_human", "eve_compensate", item=other, effect_identity="e",
                      evidence={"kind": "n"})  # fmt: skip


def test_a_result_has_a_limit_of_its_own(desk: Desk) -> None:
    desk.define(replay_class="safe", result_limit=20)
    lease = desk.lease(item=desk.item())
    with desk.refused("22023"):
        desk.complete(lease, result={"text": "x" * 30})
    assert desk.complete(lease, result={"n": 1}).accepted


def test_explain_says_why_what_and_who(desk: Desk) -> None:
    """One row a reason, for a waiting, a parked, a running and a ready item."""
    waiting = desk.item(after=["nobody"], not_before="2099-01-01Z")
    said = {row.code: row for row in desk.calls("t_producer", "eve_explain", item=waiting)}
    assert set(said) == {"unknown_dependency", "not_before"}
    assert all(row.because and row.remedy and row.owner for row in said.values())
    (parked,) = [r for r in desk.calls("t_worker", "eve_explain", item=desk.quarantined())
                 if r.code == "quarantined"]  # fmt: skip
    assert "eve_unpark" in parked.remedy
    ready = desk.item()
    assert [r.code for r in desk.calls("t_worker", "eve_explain", item=ready)] == ["ready"]
    desk.lease(item=ready)
    assert [r.code for r in desk.calls("t_worker", "eve_explain", item=ready)] == ["running"]
    other = desk.item()
    assert [r.code for r in desk.calls("t_worker", "eve_explain", item=other)] == [
        "concurrency_exhausted"
    ]
