"""What explain, checks and statement say where the record is thin, or something is in the way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from support.database import Row
from support.desk import Desk
from support.desk import at as instant

T = instant("2031-06-01 12:00")


def checks(desk: Desk, item: int) -> dict[str, Row]:
    return {row.code: row for row in desk.calls("t_auditor", "eve_checks", item=item)}


def explained(desk: Desk, item: int) -> dict[str, Row]:
    return {row.code: row for row in desk.calls("t_auditor", "eve_explain", item=item)}


def said(desk: Desk, **which: Any) -> Row:
    return desk.call("t_auditor", "eve_statement", **which)


# --- explain


def test_holds_name_the_call_that_ends_them(desk: Desk) -> None:
    desk.clock.set(T)
    desk.define(replay_class="safe", evidence="required", dependencies=["mail"],
                schema={"type": "object"})  # fmt: skip
    desk.call("t_operator", "eve_set_health", dependency="mail", health="unhealthy")
    why = explained(desk, desk.item())
    assert set(why) == {
        "capacity_evidence_missing", "dependency_unhealthy", "validator_unavailable",
    }  # fmt: skip
    measure = why["capacity_evidence_missing"].remedy
    assert f"eve_measure('{desk.queue}', 'default')" in measure
    health = why["dependency_unhealthy"].remedy
    assert f"eve_set_health('{desk.queue}', 'mail', 'healthy')" in health
    assert "eve_plpython" in why["validator_unavailable"].remedy
    assert {row.owner for row in why.values()} == {"operator"}


@pytest.mark.parametrize("health", ["saturated", "unhealthy"])
def test_explain_refuses_what_an_acquisition_refuses(desk: Desk, health: str) -> None:
    """A dependency that takes no more work is told apart from a full pool, by name."""
    desk.define(replay_class="safe", dependencies=["mail"])
    item = desk.item()
    desk.call("t_operator", "eve_set_health", dependency="mail", health=health)
    refusal = desk.acquire(item=item).refusal
    (why,) = explained(desk, item).values()
    assert (why.code, why.because) == (refusal, f"dependency mail is {health}")
    assert "eve_set_health" in why.remedy


def test_explain_looks_at_the_pool_that_may_run_it(desk: Desk) -> None:
    desk.call("t_operator", "eve_define_pool", pool="kept", classes=["gpu"])
    desk.define("gpu", replay_class="safe", pools=["kept"])
    item = desk.item(**{"class": "gpu"})
    why = explained(desk, item)
    assert set(why) == {"spend_not_approved", "concurrency_exhausted"}
    assert f"eve_approve_slots('{desk.queue}', 'kept', …)" in why["spend_not_approved"].remedy
    desk.approve("kept", 1)
    assert set(explained(desk, item)) == {"ready"}
    desk.lease(item=item, pool="kept")
    second = explained(desk, desk.item(**{"class": "gpu"}))["concurrency_exhausted"]
    assert second.detail["pool"] == "kept"
    desk.define("gpu", replay_class="safe", pools=["nowhere"])
    nowhere = explained(desk, desk.item(**{"class": "gpu"}))["not_acquirable"]
    assert nowhere.because == "no pool may run its class"


def test_a_pause_and_a_halt_name_who_ends_them(desk: Desk) -> None:
    item = desk.item()
    desk.call("t_operator", "eve_pause", **{"class": "default"})
    assert "eve_unpause" in explained(desk, item)["not_acquirable"].remedy
    desk.call("t_operator", "eve_halt", reason="stop")
    assert "eve_resume" in explained(desk, item)["fleet_halted"].remedy
    assert checks(desk, item)["A2-072"].answer is False


def test_an_uncertain_item_names_its_authority_and_what_is_missing(desk: Desk) -> None:
    desk.define(replay_class="reconcilable", effect_starts=True,
                protection={"authority": "the manifest", "observations": ["object"]})  # fmt: skip
    item = desk.item(expected_effects=["object", "manifest"])
    lease = desk.lease(item=item)
    desk.hold("eve_start_effect", lease, effect_identity="object")
    desk.hold("eve_observe_effect", lease, effect_identity="object", evidence={"kind": "digest"})
    desk.lapse(lease)
    desk.sweep()
    (why,) = explained(desk, item).values()
    assert why.code == "reconciliation_required"
    assert why.detail["authority"] == "the manifest"
    assert why.detail["missing"] == ["manifest"]


# --- checks


def test_where_nobody_can_judge_the_payload_nothing_is_valid(desk: Desk) -> None:
    desk.define(replay_class="safe", schema={"type": "object"})
    found = checks(desk, desk.item())
    for code in ("A1-002", "A2-070", "A2-143"):
        assert (found[code].answer, found[code].unavailable) == (None, ["payload"]), code


def test_a_payload_over_a_newer_limit_is_neither_valid_nor_eligible(desk: Desk) -> None:
    item = desk.item(payload={"n": "x" * 50})
    desk.define(replay_class="safe", payload_limit=10)
    found = checks(desk, item)
    assert (found["A1-001"].answer, found["A1-002"].answer) == (True, False)
    assert (found["A1-003"].answer, found["A2-072"].answer) == (False, False)


@pytest.mark.parametrize("way", ["pause", "saturated", "cancelled"])
def test_ready_is_not_eligible_while_something_is_in_the_way(desk: Desk, way: str) -> None:
    desk.define(replay_class="safe", dependencies=["mail"])
    item = desk.item(cancellation_identity="order")
    assert checks(desk, item)["A1-003"].answer is True
    if way == "pause":
        desk.call("t_operator", "eve_pause", **{"class": "default"})
    elif way == "saturated":
        desk.call("t_operator", "eve_set_health", dependency="mail", health="saturated")
    else:
        desk.db.rows("insert into eve.cancellation values (%s, 'order', '', now(), 'x')", [desk.id])
    row = checks(desk, item)["A1-003"]
    assert (row.answer, desk.phase(item)) == (False, "ready")
    assert row.evidence["in_the_way"] != "nothing"


def test_a_cancellation_after_the_effect_withdraws_the_intent_and_prevents_nothing(
    desk: Desk,
) -> None:
    desk.define(replay_class="reconcilable", effect_starts=True, cancel_boundary="effect_start")
    item = desk.item()
    desk.hold("eve_start_effect", desk.lease(item=item))
    desk.call("t_operator", "eve_cancel", item=item)
    found = checks(desk, item)
    states = {code: found[code].answer for code in ("A2-063", "A2-064", "A2-073", "A2-075")}
    assert states == {"A2-063": False, "A2-064": True, "A2-073": True, "A2-075": False}
    desk.clock.set(desk.state(item).expires_at)
    assert checks(desk, item)["A2-075"].answer is True  # lapsed, and nobody has recovered it yet


def test_what_was_superseded_after_its_effect_started_stays_indeterminate(desk: Desk) -> None:
    desk.define(replay_class="reconcilable", effect_starts=True)
    item = desk.item()
    lease = desk.lease(item=item)
    desk.hold("eve_start_effect", lease)
    desk.call("t_operator", "eve_cancel", item=item)
    assert desk.phase(item) == "cancelled"
    assert checks(desk, item)["A2-075"].answer is True


def test_an_import_was_never_decided_here(desk: Desk) -> None:
    asked = desk.call("t_operator", "eve_propose", kind="import", subject={"n": 1}).decision
    desk.call("t_human", "eve_accept", decision=asked)
    item = desk.call("t_verifier", "eve_settle_import", decision=asked, work_id="old",
                     payload={"n": 1}).item  # fmt: skip
    row = checks(desk, item)["A1-099"]
    assert (row.answer, row.unavailable) == (None, ["decision", "decision_reason"])


def test_a_deadline_before_the_start_is_not_feasible(desk: Desk) -> None:
    desk.clock.set(T)
    desk.define(replay_class="safe", evidence="limit", evidence_limit=9)
    desk.calls("t_operator", "eve_measure")
    item = desk.item(not_before=T + timedelta(hours=1), deadline=T + timedelta(minutes=90))
    desk.calls("t_operator", "eve_measure")
    assert checks(desk, item)["A2-066"].answer is True
    late = desk.db.value(
        "select answer from eve._checks_of(jsonb_strip_nulls(eve._facts_of("
        " eve._look(%s, '{auditor}'), %s, %s)) || '{\"margin\": \"31 min\"}')"
        " where code = 'A2-066'",
        [desk.queue, item, T],
    )
    assert late is False


def test_the_stricter_completion_test_counts(desk: Desk) -> None:
    item = desk.item(completion_test="report")
    assert checks(desk, item)["A1-103"].answer is False
    desk.define(preset="effect", replay_class="safe")
    assert checks(desk, item)["A1-103"].answer is True


# --- the statement


def test_a_statement_names_what_the_decision_had_before_it(desk: Desk) -> None:
    """Not what was measured, defined or submitted since."""
    desk.clock.set(T)
    desk.define(replay_class="safe", evidence="limit", evidence_limit=9, dependencies=["mail"])
    desk.call("t_operator", "eve_set_health", dependency="mail", health="healthy", capacity=4,
              valid_for="1 day")  # fmt: skip
    desk.calls("t_operator", "eve_measure")
    item = desk.item()
    first = said(desk, item=item)
    assert (first.slots["depth"], first.slots["bytes"]) == (0, 0)
    assert first.slots["dependency_capacity"] == {"mail": "4"}
    desk.clock.advance(60)
    desk.item()
    desk.define(replay_class="safe", evidence="none")
    desk.define(replay_class="safe", evidence="limit", evidence_limit=9, dependencies=["mail"])
    desk.calls("t_operator", "eve_measure")
    again = said(desk, item=item)
    assert again.slots == first.slots
    assert first.slots["policy"] == 2


def test_what_was_not_consulted_was_not_observed(desk: Desk) -> None:
    desk.calls("t_operator", "eve_measure")
    answer = said(desk, item=desk.item())
    assert {"depth", "bytes", "oldest_age", "observed_at"} <= set(answer.unavailable)
    assert "unavailable items" in answer.statement
    desk.define(replay_class="safe", item_limit=10, byte_limit=1000)
    counted = said(desk, item=desk.item())
    assert counted.slots["depth"] == 1
    assert "depth" not in counted.unavailable


def test_a_refused_submission_is_told_from_its_own_snapshot(desk: Desk) -> None:
    desk.clock.set(T)
    desk.define(replay_class="safe", evidence="required", measure_window="60 s")
    desk.calls("t_operator", "eve_measure")
    for _ in range(3):
        desk.item()
    desk.complete(desk.lease())
    desk.clock.advance(60)
    desk.calls("t_operator", "eve_measure")
    refused = desk.submit(deadline=T + timedelta(seconds=70))
    assert refused.reason == "deadline_infeasible"
    desk.clock.advance(30)
    desk.calls("t_operator", "eve_measure")
    answer = said(desk, submission=refused.submission)
    assert (answer.slots["depth"], answer.slots["completions"]) == (2, 1)
    assert answer.slots["observed_at"].startswith("2031-06-01T12:01:00")
    desk.define("plain", replay_class="safe")
    passed = desk.submit(deadline="2001-01-01Z", **{"class": "plain"})
    assert {"arrivals", "depth"} <= set(said(desk, submission=passed.submission).unavailable)


@pytest.mark.parametrize("phase", ["uncertain", "quarantined"])
def test_a_terminal_record_may_be_uncertainty_or_a_park(desk: Desk, phase: str) -> None:
    item = getattr(desk, phase)()
    answer = said(desk, item=item)
    assert answer.slots["terminal_record"].startswith(f"{phase} by t_worker at ")
    assert answer.slots["lease"] == f"item {item} by t_worker (w)"
    assert answer.slots["attempt"] == 1
