"""Contract §8: cancellation is a transition that current and later holders see; tombstones."""

from __future__ import annotations

import pytest

from support.database import call
from support.desk import Desk


@pytest.mark.parametrize("waits", ["ready", "held"])
def test_waiting_work_is_cancelled_at_once(desk: Desk, waits: str) -> None:
    item = desk.item(after=["never"] if waits == "held" else None)
    answer = desk.call("t_producer", "eve_cancel", item=item, reason="changed my mind")
    assert (answer.done, answer.phase) == (True, "cancelled")
    assert desk.events(item)[-1].reason == "changed my mind"
    assert desk.acquire(item=item).refusal == "not_acquirable"
    assert not desk.acquire().granted
    again = desk.call("t_producer", "eve_cancel", item=item)
    assert (again.done, again.version) == (False, None)


def test_by_work_id(desk: Desk) -> None:
    item = desk.item(work_id="a")
    assert desk.call("t_producer", "eve_cancel", work_id="a").item == item
    assert desk.phase(item) == "cancelled"
    assert not desk.call("t_producer", "eve_cancel", work_id="b").done


def test_boundary_immediate_supersedes_the_lease(desk: Desk) -> None:
    """Even after an effect started; the token is one that nobody holds; the slot is free."""
    for started in (False, True):
        lease = desk.lease(item=desk.item())
        if started:
            desk.hold("eve_start_effect", lease)
        answer = desk.call("t_operator", "eve_cancel", item=lease.item)
        assert (answer.phase, desk.phase(lease.item)) == ("cancelled", "cancelled")
        assert desk.state(lease.item).token == lease.token + 1
        for verb in ("eve_renew", "eve_complete", "eve_fail", "eve_return", "eve_fence"):
            with desk.refused("stale_fence"):
                desk.hold(verb, lease)
        assert desk.live() == 0


def test_boundary_effect_start_before_it_is_immediate(desk: Desk) -> None:
    desk.define("out", preset="effect", replay_class="reconcilable")
    lease = desk.lease(item=desk.item(**{"class": "out"}))
    assert desk.call("t_operator", "eve_cancel", item=lease.item).phase == "cancelled"
    with desk.refused("stale_fence"):
        desk.hold("eve_start_effect", lease)


def test_boundary_effect_start_after_it_is_only_asked(desk: Desk) -> None:
    """Seen at renewal and at the fence; it ends completed, or reconciled, never prevented."""
    desk.define("out", preset="effect", replay_class="reconcilable")
    item = desk.item(**{"class": "out"})
    lease = desk.lease(item=item)
    desk.hold("eve_start_effect", lease)
    answer = desk.call("t_operator", "eve_cancel", item=item)
    assert (answer.done, answer.phase) == (True, "leased")
    assert answer.detail == {"boundary": "effect_start", "requested": True}
    assert not desk.call("t_operator", "eve_cancel", item=item).done
    assert desk.hold("eve_renew", lease).cancel_requested
    assert desk.hold("eve_fence", lease).cancel_requested
    with desk.refused("55000"):
        desk.hold("eve_start_effect", lease, effect_identity="another")
    desk.hold("eve_observe_effect", lease)
    assert desk.complete(lease).phase == "verified"
    assert desk.kinds(item)[-4:] == [
        "cancel_requested", "renewed", "effect_observed", "completed",
    ]  # fmt: skip


@pytest.mark.parametrize("finding", ["absent", "observed", "unavailable"])
@pytest.mark.parametrize("loss", ["fail", "lapse", "return"])
def test_a_requested_cancellation_is_settled_by_reconciliation(
    desk: Desk, finding: str, loss: str
) -> None:
    desk.define("out", preset="effect", replay_class="reconcilable")
    item = desk.item(**{"class": "out"})
    lease = desk.lease(item=item)
    desk.hold("eve_start_effect", lease)
    desk.call("t_operator", "eve_cancel", item=item)
    if loss == "lapse":
        desk.lapse(lease)
        desk.sweep()
    else:
        desk.hold(f"eve_{loss}", lease)
    assert desk.phase(item) == "uncertain"
    desk.call("t_verifier", "eve_reconcile", item=item, finding=finding)
    expected = {"absent": "cancelled", "observed": "verified", "unavailable": "uncertain"}
    assert desk.phase(item) == expected[finding]


def test_what_is_uncertain_is_asked_too(desk: Desk) -> None:
    item = desk.uncertain()
    answer = desk.call("t_operator", "eve_cancel", item=item)
    assert (answer.done, answer.phase) == (True, "uncertain")
    assert not desk.call("t_operator", "eve_cancel", item=item).done
    desk.call("t_verifier", "eve_reconcile", item=item, finding="absent")
    assert desk.phase(item) == "cancelled"


@pytest.mark.parametrize(
    "phase", ["completed", "verified", "quarantined", "rejected", "expired", "cancelled", "unknown"]
)
def test_what_is_over_or_parked_or_unknown_is_left_alone(desk: Desk, phase: str) -> None:
    desk.define("judged", preset="agent_task", replay_class="safe")
    desk.clock.set("2031-06-01 12:00Z")
    if phase == "completed":
        item = desk.complete(desk.lease(item=desk.item(**{"class": "judged"}))).item
    elif phase == "verified":
        item = desk.done()
    elif phase == "quarantined":
        item = desk.quarantined()
    elif phase == "expired":
        item = desk.item(deadline="2031-06-01 13:00Z")
        desk.clock.set("2031-06-01 13:00Z")
        desk.sweep()
    elif phase == "unknown":
        item = 10**15
    else:
        item = desk.item()
        if phase == "rejected":
            desk.call("t_human", "eve_reject", item=item, reason="no")
        else:
            desk.call("t_operator", "eve_cancel", item=item)
    before = desk.census()
    answer = desk.call("t_operator", "eve_cancel", item=item)
    assert (answer.done, answer.version) == (False, None)
    assert desk.census() == before


# --- tombstones


def test_a_cancellation_identity_cancels_what_is_submitted_later(desk: Desk) -> None:
    """All that have it, waiting, leased and yet to come; as evidence without an item."""
    desk.approve("cloud", 2)
    waiting = desk.item(cancellation_identity="order-7")
    lease = desk.lease(item=desk.item(cancellation_identity="order-7"))
    other = desk.item(cancellation_identity="order-8")
    answer = desk.call("t_producer", "eve_cancel", cancellation_identity="order-7")
    assert (answer.done, answer.detail) == (True, {"cancelled": 2})
    assert [desk.phase(i) for i in (waiting, lease.item, other)] == [
        "cancelled", "cancelled", "ready",
    ]  # fmt: skip
    late = desk.submit(cancellation_identity="order-7", work_id="late")
    assert (late.decision, late.reason, late.item) == ("REJECT", "intent_cancelled", None)
    record = desk.db.row(
        "select * from eve.submission where queue_id = %s and submission = %s",
        [desk.id, late.submission],
    )
    assert (record.work_id, record.decision) == ("late", "REJECT")
    assert not desk.call("t_producer", "eve_cancel", cancellation_identity="order-7").done
    with desk.refused("not_admitted"):
        desk.submit(cancellation_identity="order-7", must_admit=True)


def test_the_identity_is_the_work_id_when_not_said(desk: Desk) -> None:
    item = desk.item(work_id="a")
    intent = desk.call("t_auditor", "eve_item", item=item).intent
    assert intent["cancellation_identity"] == "a"
    assert "cancellation_identity" in intent["derived"]
    unnamed = desk.call("t_auditor", "eve_item", item=desk.item())
    assert unnamed.intent["cancellation_identity"] == unnamed.work_id
    assert desk.call("t_producer", "eve_cancel", cancellation_identity="a").detail == {
        "cancelled": 1
    }
    assert desk.phase(item) == "cancelled"
    desk.call("t_producer", "eve_cancel", cancellation_identity="b")
    assert desk.submit(work_id="b").reason == "intent_cancelled"
    own = desk.submit(work_id="c", cancellation_identity="b")
    assert own.reason == "intent_cancelled"
    assert desk.submit(work_id="a2", cancellation_identity="a2").decision == "ADMIT"


def test_delayed_work_cannot_revive_a_cancelled_intent(desk: Desk) -> None:
    """A submission that was under way when the identity was cancelled: caught at the door."""
    submitting = desk.db.connect("t_producer", autocommit=False)
    item = call(submitting, "eve_submit", queue=desk.queue, work_id="a")[0].item
    asked = desk.call("t_producer", "eve_cancel", cancellation_identity="a")
    assert asked.detail == {"cancelled": 0}
    submitting.commit()
    assert desk.phase(item) == "ready"
    refused = desk.acquire(item=item)
    assert (refused.granted, refused.refusal) == (False, "not_acquirable")
    assert refused.detail["blocked"] == "intent_cancelled"
    assert not desk.acquire().granted
    assert (desk.phase(item), desk.events(item)[-1].reason) == ("cancelled", "intent_cancelled")


def test_a_cancelled_identity_starts_no_effect(desk: Desk) -> None:
    """Re-checked before the effect, for a lease that the cancellation did not see."""
    submitting = desk.db.connect("t_producer", autocommit=False)
    item = call(submitting, "eve_submit", queue=desk.queue, work_id="a")[0].item
    cancelling = desk.db.connect("t_producer", autocommit=False)
    call(cancelling, "eve_cancel", queue=desk.queue, cancellation_identity="a")
    submitting.commit()
    lease = desk.lease(item=item)
    cancelling.commit()
    with desk.refused("55000") as refused:
        desk.hold("eve_start_effect", lease)
    assert refused.error.diag.message_hint
    desk.hold("eve_return", lease)
    assert not desk.acquire().granted
    assert desk.phase(item) == "cancelled"


def test_an_unparked_item_of_a_cancelled_identity_is_not_run(desk: Desk) -> None:
    item = desk.quarantined(work_id="a")
    desk.call("t_operator", "eve_cancel", cancellation_identity="a")
    desk.call("t_human", "eve_unpark", item=item)
    assert not desk.acquire().granted
    assert desk.phase(item) == "cancelled"
