"""E-032 … E-037, and contract §7: attempts, back-off, loss, quarantine, unpark, return."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from support.desk import Desk

PROTECTION = {
    "scope": "payee", "retention": "7 days", "canonical_inputs": "all", "conflict_behaviour": "409",
    "authority": "bank", "after_retention": "reconcile",
}  # fmt: skip


def lose(desk: Desk, item: int, **arguments: Any) -> None:
    """A worker takes the item and is never heard of again."""
    desk.lapse(desk.lease(item=item, **arguments))
    desk.sweep()


def test_e_032_a_crash_without_a_report_costs_an_attempt(desk: Desk) -> None:
    item = desk.item()
    for attempt in (1, 2, 3):
        lease = desk.lease(item=item)
        assert (lease.attempt, lease.attempts_left) == (attempt, 3 - attempt)
        desk.lapse(lease)
        desk.sweep()
        assert desk.state(item).attempts == attempt
    assert desk.kinds(item) == ["admitted"] + ["acquired", "lease_expired"] * 3
    assert desk.phase(item) == "quarantined"


def test_e_032_attempts_are_acquisitions_and_never_lowered(desk: Desk) -> None:
    item = desk.item()
    counts = []
    for verb in ("eve_return", "eve_fail"):
        desk.hold(verb, desk.lease(item=item))
        counts.append(desk.state(item).attempts)
        desk.clock.advance(3600)
        desk.sweep()
    desk.hold("eve_fail", desk.lease(item=item), disposition="dead")
    desk.call("t_human", "eve_unpark", item=item)
    counts.append(desk.state(item).attempts)
    assert counts == [1, 2, 3]


def test_e_033_an_item_past_its_budget_is_refused(desk: Desk) -> None:
    """Reachable by a newer revision that allows less than was spent; the pick parks it."""
    item = desk.item()
    lose(desk, item)
    lose(desk, item)
    desk.define(replay_class="safe", attempts=2)
    answer = desk.acquire(item=item)
    assert (answer.granted, answer.refusal) == (False, "retry_budget_exhausted")
    assert (answer.detail["attempts"], answer.detail["budget"]) == (2, 2)
    assert desk.phase(item) == "ready"
    assert not desk.acquire().granted
    parked = desk.events(item)[-1]
    assert (parked.kind, parked.phase) == ("parked", "quarantined")
    assert parked.data["quarantine"]["reason"] == "max attempts exceeded"
    desk.define(replay_class="safe", attempts=3)
    assert desk.acquire(item=item).refusal == "quarantined"


def test_e_033_the_stricter_budget_wins_either_way(desk: Desk) -> None:
    desk.define(replay_class="safe", attempts=1)
    item = desk.item()
    desk.define(replay_class="safe", attempts=9)
    lose(desk, item)
    assert desk.phase(item) == "quarantined"


@pytest.mark.parametrize("last", ["lapse", "fail", "dead"])
def test_e_034_a_spent_item_is_parked_with_a_record(desk: Desk, last: str) -> None:
    start = desk.clock.set("2031-06-01 12:00Z")
    item = desk.item()
    for attempt in range(1, 4):
        lease = desk.lease(item=item, worker=f"w{attempt}")
        started = desk.clock.now()
        if last == "dead":
            desk.hold("eve_fail", lease, error="no such account", disposition="dead")
            break
        if (last == "fail" and attempt == 3) or attempt == 2:
            desk.clock.advance(10)
            desk.hold("eve_fail", lease, error=f"broken {attempt}")
            desk.clock.advance(3600)
        else:
            desk.lapse(lease)
        desk.sweep()
    event = desk.events(item)[-1]
    record = event.data["quarantine"]
    assert desk.phase(item) == event.phase == "quarantined"
    assert record["attempts"] == desk.state(item).attempts
    expected = {
        "lapse": ("max attempts exceeded", "broken 2"),
        "fail": ("max attempts exceeded", "broken 3"),
        "dead": ("no such account", "no such account"),
    }[last]
    assert (record["reason"], record.get("last_error")) == expected
    last_lease = record["last_lease"]
    assert last_lease["token"] == lease.token
    assert (last_lease["principal"], last_lease["worker"]) == ("t_worker", f"w{lease.token}")
    assert desk.db.value("select (%s)::timestamptz", [last_lease["acquired_at"]]) == started
    assert desk.db.value("select (%s)::timestamptz", [last_lease["expires_at"]]) == lease.expires_at
    assert event.at >= start
    assert desk.db.value("select (%s)::timestamptz", [record["at"]]) == event.at
    assert desk.call("t_auditor", "eve_item", item=item).status == "needs_human"


def test_e_035_a_parked_item_is_refused(desk: Desk) -> None:
    item = desk.quarantined()
    answer = desk.acquire(item=item)
    assert (answer.granted, answer.refusal) == (False, "quarantined")
    assert answer.detail["refusals"][0] == "quarantined"
    assert not desk.acquire().granted
    assert desk.kinds(item)[-1] == "failed"


def test_e_036_only_a_human_unpark_returns_it(desk: Desk) -> None:
    """Not time, not a sweep, not a revision, not an operator."""
    item = desk.quarantined()
    desk.define(replay_class="safe", attempts=900)
    desk.clock.advance(20 * 86400)
    desk.sweep()
    desk.call("t_worker", "eve_recover")
    assert not desk.call("t_operator", "eve_cancel", item=item).done
    with desk.refused("55000"):
        desk.call("t_operator", "eve_reprioritise", item=item, priority_class=0)
    with desk.refused("55000"):
        desk.call("t_verifier", "eve_reconcile", item=item, finding="absent")
    with desk.refused("55000"):
        desk.call("t_verifier", "eve_verify", item=item)
    for role in ("t_producer", "t_worker", "t_verifier", "t_operator", "t_auditor"):
        with desk.refused("terminal_state_not_owned"):
            desk.call(role, "eve_unpark", item=item)
    assert desk.phase(item) == "quarantined"
    answer = desk.call("t_human", "eve_unpark", item=item)
    assert (answer.done, answer.phase) == (True, "ready")
    with desk.refused("55000"):
        desk.call("t_human", "eve_unpark", item=item)
    assert desk.lease(item=item).granted


def test_e_037_unpark_keeps_history_and_extends_the_budget(desk: Desk) -> None:
    item = desk.item()
    for _ in range(3):
        lose(desk, item)
    before = desk.events(item)
    desk.call("t_human", "eve_unpark", item=item, extra_attempts=2, reason="fixed the cause")
    assert desk.events(item)[: len(before)] == before
    unparked = desk.events(item)[-1]
    assert (unparked.kind, unparked.reason, unparked.actor) == (
        "unparked", "fixed the cause", "t_human",
    )  # fmt: skip
    state = desk.state(item)
    assert (state.attempts, state.allowance) == (3, 2)
    lease = desk.lease(item=item)
    assert (lease.attempt, lease.attempts_left) == (4, 1)
    desk.lapse(lease)
    desk.sweep()
    assert desk.phase(item) == "ready"
    lose(desk, item)
    assert desk.phase(item) == "quarantined"


def test_e_037_extra_attempts_count_from_what_is_spent(desk: Desk) -> None:
    """A budget that was lowered meanwhile does not eat them."""
    item = desk.item()
    for _ in range(3):
        lose(desk, item)
    desk.define(replay_class="safe", attempts=1)
    desk.call("t_human", "eve_unpark", item=item, extra_attempts=1)
    assert desk.lease(item=item).attempts_left == 0


def test_a_parked_item_ends_by_retention_only(desk: Desk) -> None:
    item = desk.quarantined()
    since = desk.state(item).at
    desk.clock.set(since + timedelta(days=30) - timedelta(seconds=1))
    assert desk.sweep().dead == 0
    desk.clock.set(since + timedelta(days=30))
    assert desk.sweep().dead == 1
    assert (desk.phase(item), desk.kinds(item)[-1]) == ("dead", "dead")
    assert desk.acquire(item=item).refusal == "not_acquirable"


# --- back-off


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        ({}, [10, 20, 40]),
        ({"backoff_base": "1 s", "backoff_factor": 3, "backoff_cap": "5 s"}, [1, 3, 5, 5]),
        ({"backoff_base": "0 s"}, [0, 0]),
        ({"backoff_factor": 1}, [10, 10, 10]),
    ],
)
def test_a_retry_waits_longer_each_time(
    desk: Desk, policy: dict[str, Any], waits: list[float]
) -> None:
    """Exponentially, capped; exactly so without jitter. Released at its instant, not before."""
    desk.clock.set("2031-06-01 12:00Z")
    desk.define(replay_class="safe", attempts=9, backoff_jitter=0, **policy)
    item = desk.item()
    for wait in waits:
        now = desk.clock.now()
        answer = desk.hold("eve_fail", desk.lease(item=item))
        due = now + timedelta(seconds=wait)
        assert answer.next_at == due
        if wait == 0:
            assert answer.phase == desk.phase(item) == "ready"
            continue
        assert (answer.phase, desk.holds(item)) == ("held", ["retry_backoff"])
        desk.clock.set(due - timedelta(microseconds=1))
        assert desk.sweep().released == 0
        refused = desk.acquire(item=item)
        assert (refused.granted, refused.refusal) == (False, "not_acquirable")
        assert desk.acquire().next_at == due
        desk.clock.set(due)
        assert desk.sweep().released == 1


def test_jitter_only_shortens(desk: Desk) -> None:
    waits = desk.db.rows(
        """
        select extract(epoch from eve._backoff(p, 3))::float8 as seconds
        from generate_series(1, 300), lateral (
            select eve._policy_of('job', '{"replay_class": "safe"}') as p) as x
        """
    )
    seconds = [row.seconds for row in waits]
    assert 32 <= min(seconds) < max(seconds) <= 40
    assert len(set(seconds)) > 100


# --- what becomes of a lost attempt

SAFE = {"replay_class": "safe"}
STARTS = {"effect_starts": True}
DESTINATION = {"replay_class": "destination_protected", "protection": PROTECTION}


@pytest.mark.parametrize(
    ("policy", "started", "days", "phase"),
    [
        (SAFE, False, 0, "ready"),
        (SAFE, True, 0, "ready"),
        (DESTINATION, False, 0, "ready"),
        (DESTINATION, True, 1, "ready"),
        (DESTINATION, True, 8, "uncertain"),
        (DESTINATION | STARTS, False, 8, "ready"),
        ({"replay_class": "reconcilable"}, False, 0, "uncertain"),
        ({"replay_class": "reconcilable"} | STARTS, False, 0, "ready"),
        ({"replay_class": "reconcilable"} | STARTS, True, 0, "uncertain"),
        ({"replay_class": "non_repeatable"}, False, 0, "uncertain"),
        ({"replay_class": "non_repeatable"} | STARTS, False, 0, "ready"),
        ({"replay_class": "non_repeatable"} | STARTS, True, 0, "uncertain"),
    ],
)
def test_a_loss_is_repeated_only_where_repetition_is_safe(
    desk: Desk, policy: dict[str, Any], started: bool, days: int, phase: str
) -> None:
    """With budget left and with the last attempt: uncertainty wins over quarantine."""
    for attempts in (3, 1):
        desk.define(f"c{attempts}", attempts=attempts, **policy)
        item = desk.item(**{"class": f"c{attempts}"})
        lease = desk.lease(item=item)
        if started:
            desk.hold("eve_start_effect", lease)
        desk.lapse(lease)
        desk.clock.advance(days * 86400)
        desk.sweep()
        after = "quarantined" if phase == "ready" and attempts == 1 else phase
        event = desk.events(item)[-1]
        assert (event.kind, desk.phase(item)) == ("lease_expired", after)
        if after == "uncertain":
            assert (event.reason, event.data["owner"]) == ("reconciliation_required", "queue")


@pytest.mark.parametrize("worse", ["reconcilable", "non_repeatable"])
def test_of_class_and_submission_the_worse_replay_class_counts(desk: Desk, worse: str) -> None:
    item = desk.item(replay_class=worse)
    lose(desk, item)
    assert desk.phase(item) == "uncertain"
    desk.define("careful", replay_class=worse)
    milder = desk.item(**{"class": "careful"}, replay_class="safe")
    lose(desk, milder)
    assert desk.phase(milder) == "uncertain"


@pytest.mark.parametrize(
    ("disposition", "started", "phase"),
    [
        ("retry", False, "held"), ("retry", True, "uncertain"), ("uncertain", False, "uncertain"),
        ("dead", False, "quarantined"), ("dead", True, "uncertain"),
    ],
)  # fmt: skip
def test_a_failure_is_disposed_of_as_the_holder_and_the_class_say(
    desk: Desk, disposition: str, started: bool, phase: str
) -> None:
    desk.define("out", preset="effect", replay_class="reconcilable")
    item = desk.item(**{"class": "out"})
    lease = desk.lease(item=item)
    if started:
        desk.hold("eve_start_effect", lease)
    answer = desk.hold("eve_fail", lease, disposition=disposition)
    assert answer.phase == desk.phase(item) == phase
    assert desk.events(item)[-1].reason == "failed"


def test_an_effect_start_counts_for_its_own_attempt(desk: Desk) -> None:
    desk.define("out", preset="effect", replay_class="reconcilable")
    item = desk.item(**{"class": "out"})
    lease = desk.lease(item=item)
    desk.hold("eve_start_effect", lease)
    desk.hold("eve_fail", lease)
    desk.call("t_verifier", "eve_reconcile", item=item, finding="absent")
    lose(desk, item)
    assert desk.phase(item) == "ready"


# --- a voluntary return


def test_a_return_costs_no_attempt_as_often_as_the_budget(desk: Desk) -> None:
    item = desk.item()
    left = []
    for _ in range(6):
        lease = desk.lease(item=item)
        left.append(lease.attempts_left)
        answer = desk.hold("eve_return", lease, reason="not my tools")
        assert (answer.accepted, answer.phase) == (True, "ready")
    assert left == [2, 2, 2, 2, 1, 0]
    assert (desk.state(item).attempts, desk.state(item).credits) == (6, 3)
    credited = [e.attempts for e in desk.events(item) if e.kind == "returned"]
    assert credited == [1, 1, 1, None, None, None]
    assert not desk.acquire().granted
    assert desk.phase(item) == "quarantined"


def test_a_return_after_an_effect_start_credits_nothing(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    desk.hold("eve_start_effect", lease)
    assert desk.hold("eve_return", lease).phase == "ready"
    assert desk.state(lease.item).credits == 0


def test_a_return_after_an_effect_start_follows_the_rule_for_a_loss(desk: Desk) -> None:
    desk.define("out", preset="effect", replay_class="reconcilable")
    lease = desk.lease(item=desk.item(**{"class": "out"}))
    desk.hold("eve_start_effect", lease)
    assert desk.hold("eve_return", lease).phase == "uncertain"


def test_a_return_until_a_time(desk: Desk) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    item = desk.item()
    answer = desk.hold("eve_return", desk.lease(item=item), until="2031-06-01 13:00Z")
    assert (answer.phase, desk.holds(item)) == ("held", ["not_before"])
    assert answer.next_at == desk.clock.now() + timedelta(hours=1)
    desk.clock.advance(3599)
    assert not desk.acquire().granted
    desk.clock.advance(1)
    assert desk.acquire().item == item


def test_a_return_until_a_time_that_has_passed_is_ready(desk: Desk) -> None:
    answer = desk.hold("eve_return", desk.lease(item=desk.item()), until="2001-01-01Z")
    assert (answer.phase, answer.next_at) == ("ready", None)


@pytest.mark.parametrize("verdict", ["eve_accept", "eve_decline"])
def test_a_return_until_a_decision_brings_its_answer(desk: Desk, verdict: str) -> None:
    item = desk.item()
    lease = desk.lease(item=item)
    asked = desk.hold("eve_propose", lease, kind="approval", digest="0" * 64, subject={"pay": 10})
    assert desk.hold("eve_return", lease, decision=asked.decision).phase == "held"
    assert desk.holds(item) == ["awaiting_decision"]
    assert desk.call("t_auditor", "eve_item", item=item).status == "needs_human"
    refused = desk.acquire(item=item)
    assert (refused.granted, refused.refusal) == (False, "not_acquirable")
    desk.call("t_human", verdict, decision=asked.decision, answer={"by": "phone"})
    again = desk.lease(item=item)
    assert again.answers[0]["decision"] == asked.decision
    assert again.answers[0]["answer"] == {"eve_accept": "accepted", "eve_decline": "declined"}[
        verdict
    ]  # fmt: skip
    assert again.answers[0]["data"] == {"by": "phone"}
    event = desk.events(0)[-1]
    assert (event.kind, event.data) == (
        "decision_consumed", {"decision": asked.decision, "item": item},
    )  # fmt: skip
    desk.hold("eve_return", again)
    assert desk.lease(item=item).answers is None  # it holds for one attempt


def test_an_answer_is_consumed_by_a_batch_and_given_again_by_its_key(desk: Desk) -> None:
    desk.approve("cloud", 3)
    items = [desk.item() for _ in range(2)]
    asked = []
    for item in items:
        lease = desk.lease(item=item)
        approval = desk.hold("eve_propose", lease, kind="approval", digest="0" * 64)
        asked.append(approval.decision)
        desk.hold("eve_return", lease, decision=asked[-1])
    for decision in asked:
        desk.call("t_human", "eve_accept", decision=decision)
    for _ in range(2):
        rows = desk.calls("t_worker", "eve_acquire", worker="w", max_items=2, idempotency_key="k")
        assert [[a["decision"] for a in row.answers] for row in rows] == [[d] for d in asked]
    assert [e.kind for e in desk.events(0)].count("decision_consumed") == 2


def test_a_return_after_other_work(desk: Desk) -> None:
    item = desk.item(work_id="me")
    answer = desk.hold("eve_return", desk.lease(item=item), after=["other"])
    assert (answer.phase, desk.holds(item)) == ("held", ["unknown_dependency"])
    other = desk.item(work_id="other")
    assert desk.holds(item) == ["dependency_not_ready"]
    assert desk.acquire(item=item).refusal == "dependency_not_ready"
    desk.complete(desk.lease(item=other))
    assert desk.phase(item) == "ready"
    done = desk.hold("eve_return", desk.lease(item=item), after=["other"])
    assert done.phase == "ready"
    itself = desk.hold("eve_return", desk.lease(item=item), after=["me"])
    assert (itself.phase, desk.holds(item)) == (
        "held", ["dependency_cycle", "dependency_not_ready"],
    )  # fmt: skip


def test_a_return_for_reconciliation(desk: Desk) -> None:
    item = desk.item()
    answer = desk.hold("eve_return", desk.lease(item=item), reconcile=True)
    assert answer.phase == desk.phase(item) == "uncertain"
    desk.call("t_verifier", "eve_reconcile", item=item, finding="absent", scope="ledger of today")
    assert desk.phase(item) == "ready"


def test_a_return_may_wait_for_several_things(desk: Desk) -> None:
    """A set: the last of them releases it."""
    desk.clock.set("2031-06-01 12:00Z")
    item = desk.item()
    lease = desk.lease(item=item)
    asked = desk.hold("eve_propose", lease, kind="approval", digest="0" * 64)
    desk.hold("eve_return", lease, until="2031-06-01 13:00Z", decision=asked.decision,
              after=["other"])  # fmt: skip
    assert desk.holds(item) == ["awaiting_decision", "not_before", "unknown_dependency"]
    desk.clock.advance(3600)
    desk.sweep()
    assert desk.holds(item) == ["awaiting_decision", "unknown_dependency"]
    desk.done(work_id="other")
    assert desk.holds(item) == ["awaiting_decision"]
    desk.call("t_human", "eve_accept", decision=asked.decision)
    assert desk.phase(item) == "ready"


# --- reconciliation


@pytest.mark.parametrize(
    ("finding", "phase"),
    [("observed", "verified"), ("absent", "ready"), ("unavailable", "uncertain")],
)
def test_a_reconciliation_settles_what_is_uncertain(desk: Desk, finding: str, phase: str) -> None:
    item = desk.uncertain()
    with desk.refused("42501"):
        desk.call("t_worker", "eve_reconcile", item=item, finding=finding)
    answer = desk.call(
        "t_verifier", "eve_reconcile", item=item, finding=finding, evidence={"kind": "seen"},
        scope="all",
    )  # fmt: skip
    assert answer.phase == desk.phase(item) == phase
    event = desk.events(item)[-1]
    assert event.data["finding"] == finding
    assert (event.data["evidence"], event.data["scope"]) == ([{"kind": "seen"}], "all")


def test_an_absent_effect_without_budget_is_parked(desk: Desk) -> None:
    desk.define(replay_class="safe", attempts=1)
    item = desk.uncertain()
    answer = desk.call("t_human", "eve_reconcile", item=item, finding="absent")
    assert answer.phase == "quarantined"
    assert desk.events(item)[-1].data["quarantine"]["attempts"] == 1


@pytest.mark.parametrize("review", ["class", "submission"])
def test_an_observed_effect_of_reviewed_work_still_wants_its_review(
    desk: Desk, review: str
) -> None:
    """`verified` is the verifier's word, not that of whoever looked the effect up."""
    if review == "class":
        desk.define(preset="agent_task", replay_class="safe")
        item = desk.uncertain()
    else:
        item = desk.uncertain(completion_test="review")
    assert desk.call("t_human", "eve_reconcile", item=item, finding="observed").phase == "completed"
    assert desk.call("t_verifier", "eve_verify", item=item).phase == "verified"
