"""The two traces and the arithmetic case of the source documents, with their numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from support.database import Row
from support.desk import Desk
from support.desk import at as instant

T0 = instant("2031-06-01 12:00")
T1 = T0 + timedelta(minutes=16)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def steps(answer: Row) -> dict[int, Any]:
    return {step["step"]: step for step in answer.evidence["steps"]}


def drain(desk: Desk, count: int, **arguments: Any) -> None:
    """Work done within the window: what the completion rate is made of."""
    items = [desk.item(**arguments) for _ in range(count)]
    for item in items:
        desk.complete(desk.lease(item=item, pool="cloud"), result={"done": True})


def exports(desk: Desk) -> None:
    """Nine packages done in the 48 minutes up to T1, three queued since 17 minutes before T0."""
    desk.approve("cloud", 2)
    desk.clock.set(T1 - minutes(48))
    desk.define(
        "export", replay_class="reconcilable", evidence="required", freshness="2 min",
        measure_window="48 min", item_limit=10,
    )  # fmt: skip
    desk.call("t_operator", "eve_measure", **{"class": "export"})
    drain(desk, 9, **{"class": "export"})
    desk.clock.set(T0 - minutes(17))
    desk.call("t_operator", "eve_measure", **{"class": "export"})
    for _ in range(3):
        assert desk.submit(**{"class": "export"}).decision == "ADMIT"
    desk.clock.set(T0 - minutes(12))
    (seen,) = desk.calls("t_operator", "eve_measure", **{"class": "export"})
    assert (seen.queued_items, seen.in_flight, seen.completions) == (3, 0, 9)
    desk.clock.set(T0)


def work_104(desk: Desk) -> Row:
    return desk.submit(
        work_id="WORK-104", operation_identity="EXPORT-SNAPSHOT-31", effect_identity="PACKAGE-31",
        deadline=T0 + minutes(20), minimum_completion_margin="6 min", completion_test="effects",
        expected_effects=["manifest", "object digest"], **{"class": "export"},
    )  # fmt: skip


def test_a1_067_a1_068_a1_041_a_stale_observation_holds_what_a_count_would_admit(
    desk: Desk,
) -> None:
    exports(desk)
    answer = work_104(desk)
    assert (answer.decision, answer.reason) == ("HOLD", "capacity_evidence_stale")
    found = steps(answer)
    assert found[6]["age"] == "00:12:00"
    assert (found[7]["verdict"], found[7]["limit"]) == ("stale", "00:02:00")
    assert found[8]["verdict"] == "unavailable"  # the lifetime cannot be judged: blocked
    assert (found[9]["items"], found[9]["item_limit"]) == (3, 10)  # by count there is room
    (hold,) = answer.evidence["holds"]
    assert (hold["trigger"], hold["ref"], hold["owner"]) == ("observation", "export", "operator")
    state = desk.state(answer.item)
    assert (state.phase, state.attempts) == ("held", 0)
    oldest = desk.db.value(
        "select %s::timestamptz - eve._oldest_eligible(%s, w.class_id) from eve.work_item as w"
        " where w.queue_id = %s and w.item = %s",
        [T0, desk.id, desk.id, answer.item],
    )
    assert oldest == minutes(17)


def test_a1_069_a1_066_a_fresh_observation_releases_the_hold_and_the_lifetime_fails(
    desk: Desk,
) -> None:
    exports(desk)
    answer = work_104(desk)
    desk.clock.set(T1)
    (seen,) = desk.calls("t_operator", "eve_measure", **{"class": "export"})
    assert (seen.start_delay, seen.eligible_items, seen.released) == (minutes(16), 3, 1)
    assert (seen.measured, seen.completions) == (minutes(48), 9)
    expired = desk.events(answer.item)[-1]
    assert (expired.kind, expired.reason) == ("expired", "deadline_infeasible")
    assert expired.data["evidence"]["start_delay"] == "00:16:00"
    assert desk.kinds(answer.item) == ["held", "expired"]  # never started, nothing was tested
    state = desk.state(answer.item)
    assert (state.attempts, state.effect_started) == (0, False)


def lost_answer(desk: Desk) -> Row:
    """The attempt reached the store, its answer was lost, the lease lapses."""
    exports(desk)
    desk.call("t_operator", "eve_measure", **{"class": "export"})
    answer = desk.submit(
        work_id="WORK-104", operation_identity="EXPORT-SNAPSHOT-31", effect_identity="PACKAGE-31",
        completion_test="effects", expected_effects=["manifest", "object digest"],
        **{"class": "export"},
    )  # fmt: skip
    assert answer.decision == "ADMIT"
    lease = desk.lease(item=answer.item, pool="cloud")
    desk.hold("eve_start_effect", lease, effect_identity="PACKAGE-31")
    desk.lapse(lease)
    desk.call("t_operator", "eve_recover")
    return lease


def test_a1_070_a1_052_a_lost_answer_is_uncertain_neither_failed_nor_completed(desk: Desk) -> None:
    lease = lost_answer(desk)
    assert desk.phase(lease.item) == "uncertain"
    last = desk.events(lease.item)[-1]
    assert (last.kind, last.reason) == ("lease_expired", "reconciliation_required")
    refused = desk.acquire(item=lease.item, pool="cloud")
    assert (refused.granted, refused.refusal) == (False, "not_acquirable")
    (why,) = desk.calls("t_auditor", "eve_explain", item=lease.item)
    assert why.code == "reconciliation_required"
    assert "eve_reconcile" in why.remedy
    assert not {"failed", "completed", "verified"} & set(desk.kinds(lease.item))


def test_a1_071_the_effect_was_found_and_no_second_is_made(desk: Desk) -> None:
    lease = lost_answer(desk)
    for effect in ("manifest", "object digest"):
        desk.call(
            "t_verifier", "eve_observe_effect", item=lease.item, effect_identity=effect,
            evidence={"kind": "lookup", "uri": f"store://PACKAGE-31/{effect}"},
        )  # fmt: skip
    answer = desk.call(
        "t_verifier", "eve_reconcile", item=lease.item, finding="observed",
        evidence={"kind": "lookup", "uri": "store://PACKAGE-31"},
    )  # fmt: skip
    assert answer.phase in ("completed", "verified")
    assert desk.state(lease.item).attempts == 1
    assert desk.kinds(lease.item).count("effect_started") == 1


def test_a1_072_no_effect_was_found_and_a_new_attempt_may_be_judged(desk: Desk) -> None:
    lease = lost_answer(desk)
    answer = desk.call(
        "t_verifier", "eve_reconcile", item=lease.item, finding="absent",
        evidence={"kind": "lookup", "uri": "store://PACKAGE-31"},
    )  # fmt: skip
    assert answer.phase == "ready"
    assert desk.lease(item=lease.item, pool="cloud").token > lease.token


def test_a1_073_the_destination_cannot_answer_and_it_stays_uncertain(desk: Desk) -> None:
    lease = lost_answer(desk)
    answer = desk.call(
        "t_verifier", "eve_reconcile", item=lease.item, finding="unavailable",
        evidence={"kind": "lookup", "note": "store does not answer"},
    )  # fmt: skip
    assert answer.phase == "uncertain"
    desk.sweep()
    assert desk.phase(lease.item) == "uncertain"
    assert not desk.acquire(item=lease.item, pool="cloud").granted


def test_a2_011_thirty_seconds_of_which_twenty_eight_are_spent(desk: Desk) -> None:
    desk.approve("cloud", 2)
    desk.clock.set(T0 - timedelta(seconds=60))
    desk.define(
        replay_class="safe", evidence="required", freshness="10 min", measure_window="60 s",
        byte_limit=1_000_000,
    )  # fmt: skip
    desk.call("t_operator", "eve_measure", **{"class": "default"})
    drain(desk, 60)
    for _ in range(11):
        desk.item()
    desk.clock.set(T0)
    desk.calls("t_operator", "eve_measure")
    desk.clock.set(T0 + timedelta(seconds=28, milliseconds=50))
    answer = desk.submit(
        requested_at=T0, deadline=T0 + timedelta(seconds=30), minimum_completion_margin="6 s"
    )
    assert (answer.decision, answer.reason) == ("EXPIRE", "deadline_infeasible")
    assert answer.item is None
    kept = desk.db.row(
        "select * from eve.submission where submission = %s and queue_id = %s",
        [answer.submission, desk.id],
    )
    assert kept.evidence == answer.evidence
    found = steps(answer)
    assert found[8] == {
        "step": 8, "name": found[8]["name"], "start_delay": "00:00:11", "verdict": "infeasible",
    }  # fmt: skip
    assert found[3]["margin"] == "00:00:06"
    assert desk.submit().decision == "ADMIT"  # bytes are free
