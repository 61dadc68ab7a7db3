"""The fourteen rows of the decision table: what is decided, and what is kept of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from support.database import Row
from support.desk import Desk
from support.desk import at as instant

T = instant("2031-06-01 12:00")


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def step(evidence: dict[str, Any], number: int) -> dict[str, Any]:
    (found,) = [s for s in evidence["steps"] if s["step"] == number]
    return dict(found)


def kept(desk: Desk, answer: Row) -> Row:
    """The record of a submission that was refused storage."""
    assert answer.item is None
    record = desk.db.row(
        "select * from eve.submission where queue_id = %s and submission = %s",
        [desk.id, answer.submission],
    )
    assert (record.decision, record.reason) == (answer.decision, answer.reason)
    assert record.evidence == answer.evidence
    return record


def measured(desk: Desk, name: str, done: int, waiting: int, **policy: Any) -> None:
    """A class measured over a minute in which so many were done, so many waiting now."""
    desk.approve("cloud", 4)
    desk.clock.set(T - seconds(60))
    desk.define(name, replay_class="safe", evidence="required", measure_window="60 s",
                freshness="60 s", **policy)  # fmt: skip
    desk.calls("t_operator", "eve_measure", **{"class": name})
    for item in [desk.item(**{"class": name}) for _ in range(done)]:
        desk.complete(desk.lease(item=item, pool="cloud"))
    for _ in range(waiting):
        desk.item(**{"class": name})
    desk.clock.set(T)
    desk.calls("t_operator", "eve_measure", **{"class": name})


def cancelled_before_enqueue(desk: Desk) -> None:
    desk.call("t_operator", "eve_cancel", cancellation_identity="order-7", reason="withdrawn")
    answer = desk.submit(cancellation_identity="order-7", work_id="a")
    assert (answer.decision, answer.reason) == ("REJECT", "intent_cancelled")
    record = kept(desk, answer)
    assert record.work_id == "a"
    assert step(record.evidence, 2)["cancelled"] is True


def deadline_cannot_contain_wait_and_execution(desk: Desk) -> None:
    measured(desk, "slow", done=6, waiting=3)
    answer = desk.submit(deadline=T + seconds(35), minimum_completion_margin="6 s",
                         **{"class": "slow"})  # fmt: skip
    assert (answer.decision, answer.reason) == ("EXPIRE", "deadline_infeasible")
    record = kept(desk, answer)
    assert step(record.evidence, 3)["margin"] == "00:00:06"
    assert step(record.evidence, 3)["deadline"].startswith("2031-06-01T12:00:35")
    assert step(record.evidence, 8)["start_delay"] == "00:00:30"


def items_left_but_bytes_gone(desk: Desk) -> None:
    desk.define("big", replay_class="safe", item_limit=10, byte_limit=200)
    desk.item(payload={"x": "x" * 150}, **{"class": "big"})
    answer = desk.submit(payload={"x": "x" * 150}, **{"class": "big"})
    assert (answer.decision, answer.reason) == ("REJECT", "byte_budget_exhausted")
    found = step(kept(desk, answer).evidence, 9)
    assert (found["items"], found["item_limit"]) == (1, 10)
    assert (found["bytes"], found["size"], found["byte_limit"]) == (159, 159, 200)


def an_equivalent_replaceable_intent_waits(desk: Desk) -> None:
    desk.define("fresh", replay_class="safe", coalesce="absorb")
    first = desk.item(coalescing_key="page-1", **{"class": "fresh"})
    answer = desk.submit(coalescing_key="page-1", work_id="second", **{"class": "fresh"})
    assert (answer.decision, answer.reason) == ("COALESCE", "equivalent_waiting")
    assert answer.survivor == first
    found = step(kept(desk, answer).evidence, 10)
    assert (found["rule"], found["key"], found["survivor"]) == ("absorb", "page-1", first)
    assert desk.kinds(first) == ["admitted", "absorbed"]


def high_is_free_and_bulk_is_gone(desk: Desk) -> None:
    desk.define("bulk", replay_class="safe", shared_item_limit=1)
    desk.define("high", replay_class="safe", shared_item_limit=5)
    desk.item(**{"class": "bulk"})
    refused = desk.submit(**{"class": "bulk"})
    admitted = desk.submit(**{"class": "high"})
    assert (refused.decision, refused.reason) == ("REJECT", "item_budget_exhausted")
    assert admitted.decision == "ADMIT"
    record = kept(desk, refused)
    assert (record.class_, record.revision) == ("bulk", 1)
    for answer, limit in ((refused, 1), (admitted, 5)):
        assert step(answer.evidence, 9)["shared_items"] == 1
        assert step(answer.evidence, 9)["shared_item_limit"] == limit


def capacity_is_stale_or_missing(desk: Desk) -> None:
    desk.clock.set(T)
    desk.define("blind", replay_class="safe", evidence="required", freshness="60 s")
    missing = desk.submit(**{"class": "blind"})
    assert (missing.decision, missing.reason) == ("HOLD", "capacity_evidence_missing")
    desk.calls("t_operator", "eve_measure", **{"class": "blind"})
    desk.clock.set(T + seconds(61))
    stale = desk.submit(**{"class": "blind"})
    assert (stale.decision, stale.reason) == ("HOLD", "capacity_evidence_stale")
    for answer, word in ((missing, "missing"), (stale, "stale")):
        evidence = desk.events(answer.item)[0].data["evidence"]
        assert (evidence["capacity_evidence"], step(evidence, 7)["verdict"]) == (word, word)


def stored_and_then_cancelled(desk: Desk) -> None:
    item = desk.item(cancellation_identity="order-7")
    desk.call("t_operator", "eve_cancel", cancellation_identity="order-7", reason="withdrawn")
    assert desk.phase(item) == "cancelled"
    assert desk.events(item)[-1].reason == "withdrawn"
    assert not desk.acquire().granted
    assert desk.submit(cancellation_identity="order-7").reason == "intent_cancelled"


def cancelled_after_a_non_interruptible_effect_began(desk: Desk) -> None:
    desk.define("mail", replay_class="non_repeatable", effect_starts=True,
                cancel_boundary="effect_start")  # fmt: skip
    item = desk.item(**{"class": "mail"})
    lease = desk.lease(item=item)
    desk.hold("eve_start_effect", lease, effect_identity="sent")
    desk.call("t_operator", "eve_cancel", item=item, reason="late")
    assert desk.phase(item) == "leased"
    assert desk.hold("eve_renew", lease).cancel_requested
    assert desk.complete(lease).phase == "verified"
    assert desk.kinds(item)[-3:] == ["cancel_requested", "renewed", "completed"]
    assert "cancelled" not in desk.kinds(item)


def stored_but_invalid_by_now(desk: Desk) -> None:
    item = desk.item(payload={"x": "x" * 50})
    receipt = desk.events(item)[0]
    desk.define(replay_class="safe", payload_limit=10)
    assert not desk.acquire().granted
    last = desk.events(item)[-1]
    assert (receipt.kind, receipt.revision, last.kind, last.reason) == (
        "admitted", 1, "held", "payload_invalid"
    )  # fmt: skip
    assert last.revision == 2
    assert desk.state(item).attempts == 0


def a_lease_lapses_after_a_possible_effect(desk: Desk) -> None:
    desk.define("once", replay_class="non_repeatable", effect_starts=True)
    item = desk.item(**{"class": "once"})
    lease = desk.lease(item=item)
    desk.hold("eve_start_effect", lease, effect_identity="sent")
    desk.lapse(lease)
    desk.call("t_operator", "eve_recover")
    last = desk.events(item)[-1]
    assert (last.kind, last.phase, last.token) == ("lease_expired", "uncertain", lease.token)
    assert not desk.acquire(item=item).granted
    answer = desk.call("t_verifier", "eve_reconcile", item=item, finding="observed",
                       evidence={"kind": "lookup", "uri": "mail://sent"})  # fmt: skip
    assert answer.phase in ("completed", "verified")
    assert desk.events(item)[-1].actor == "t_verifier"


def the_attempts_are_spent(desk: Desk) -> None:
    desk.define(replay_class="safe", attempts=2, backoff_base="0 s")
    item = desk.item()
    for _ in range(2):
        desk.hold("eve_fail", desk.lease(item=item), error="broken")
    assert desk.phase(item) == "quarantined"
    record = desk.events(item)[-1].data["quarantine"]
    assert (record["reason"], record["attempts"]) == ("max attempts exceeded", 2)
    assert record["last_error"] == "broken"


def all_gates_pass(desk: Desk) -> None:
    answer = desk.submit(work_id="a", payload={"n": 1}, deadline="2099-01-01Z")
    assert (answer.decision, answer.phase, answer.version) == ("ADMIT", "ready", 1)
    event = desk.events(answer.item)[0]
    intent = desk.call("t_auditor", "eve_item", item=answer.item).intent
    assert event.data["digest"] == step(answer.evidence, 1)["digest"]
    assert (event.data["class"], event.revision) == ("default", 1)
    assert intent["deadline"].startswith("2099-01-01")
    count = "select count(*) from eve.intent where queue_id = %s"
    assert desk.db.value(count, [desk.id]) == 1


def a_worker_is_free(desk: Desk) -> None:
    gone = desk.item(value_until="2031-06-01 12:00Z")
    item = desk.item()
    desk.clock.set(T)
    lease = desk.lease()
    assert lease.item == item  # what ended meanwhile was passed over, and says why
    assert desk.events(gone)[-1].reason == "value_window_ended"
    event = desk.events(item)[-1]
    assert (event.kind, event.token, event.revision) == ("acquired", lease.token, 1)
    assert desk.state(item).attempts == 1


def the_effect_is_evident(desk: Desk) -> None:
    desk.define("effects", preset="effect", replay_class="reconcilable")
    item = desk.item(expected_effects=["sent"], **{"class": "effects"})
    lease = desk.lease(item=item)
    desk.hold("eve_start_effect", lease, effect_identity="sent")
    assert desk.complete(lease).phase == "reported"
    assert not desk.acquire(item=item).granted
    answer = desk.call("t_verifier", "eve_observe_effect", item=item, effect_identity="sent",
                       evidence={"kind": "lookup", "uri": "mail://sent"})  # fmt: skip
    assert answer.item == item
    assert desk.phase(item) == "verified"
    assert not desk.acquire(item=item).granted  # nothing repeats it
    bound = desk.db.row(
        "select item, kind from eve.effect where queue_id = %s and effect_identity = 'sent'"
        " and kind = 'observed'",
        [desk.id],
    )
    assert bound.item == item


ROWS = {
    "A2-100": cancelled_before_enqueue,
    "A2-101": deadline_cannot_contain_wait_and_execution,
    "A2-102": items_left_but_bytes_gone,
    "A2-103": an_equivalent_replaceable_intent_waits,
    "A2-104": high_is_free_and_bulk_is_gone,
    "A2-105": capacity_is_stale_or_missing,
    "A2-106": stored_and_then_cancelled,
    "A2-107": cancelled_after_a_non_interruptible_effect_began,
    "A2-108": stored_but_invalid_by_now,
    "A2-109": a_lease_lapses_after_a_possible_effect,
    "A2-110": the_attempts_are_spent,
    "A2-111": all_gates_pass,
    "A2-112": a_worker_is_free,
    "A2-113": the_effect_is_evident,
}


@pytest.mark.parametrize("row", ROWS)
def test_a2_100_to_a2_113_the_table_decides(desk: Desk, row: str) -> None:
    ROWS[row](desk)


def test_a2_083_to_a2_099_every_answer_lists_the_sixteen_steps(desk: Desk) -> None:
    desk.define("blind", replay_class="safe", evidence="required")
    answers = [
        desk.submit(),
        desk.submit(deadline="2001-01-01Z"),
        desk.submit(payload={"x": "x" * 2_000_000}),
        desk.submit(**{"class": "blind"}),
        desk.submit(not_before="2099-01-01Z"),
    ]
    assert [a.decision for a in answers] == ["ADMIT", "EXPIRE", "REJECT", "HOLD", "HOLD"]
    for answer in answers:
        found = answer.evidence["steps"]
        assert [s["step"] for s in found] == list(range(1, 17))
        assert all(s["name"] for s in found)
        assert answer.evidence["policy_revision"] == answer.revision
        later = [s["verdict"] for s in found[12:15]]
        if answer.item is None:  # admission never implies execution, nor does a refusal
            assert later == ["not reached"] * 3
            assert found[15]["verdict"] == answer.decision
        else:
            assert later == ["at acquisition", "at acquisition", "at completion"]
