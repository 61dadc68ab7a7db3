"""An approval is asked under a fence for one action, and its answer is given out once."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from support.database import Row
from support.desk import Desk

ACTION = {"pay": 10, "to": "ann"}
DIGEST = hashlib.sha256(json.dumps(ACTION, sort_keys=True).encode()).hexdigest()


def ask(desk: Desk, lease: Row, **arguments: Any) -> Row:
    words = {"kind": "approval", "digest": DIGEST, "subject": {"action": ACTION}, **arguments}
    return desk.hold("eve_propose", lease, **words)


@pytest.mark.parametrize(("verdict", "word"), [("eve_accept", "accepted"),
                                               ("eve_decline", "declined")])  # fmt: skip
def test_the_answer_names_token_and_digest_that_it_was_asked_under(
    desk: Desk, verdict: str, word: str
) -> None:
    lease = desk.lease(item=desk.item())
    asked = ask(desk, lease)
    assert (asked.phase, asked.item) == ("open", lease.item)
    desk.hold("eve_return", lease, decision=asked.decision)
    desk.call("t_human", verdict, decision=asked.decision, answer={"by": "phone"})
    again = desk.lease(item=lease.item)
    assert again.token > lease.token
    assert again.answers == [{
        "decision": asked.decision, "kind": "approval", "answer": word, "data": {"by": "phone"},
        "token": str(lease.token), "digest": DIGEST,
    }]  # fmt: skip
    desk.hold("eve_return", again)
    assert desk.lease(item=lease.item).answers is None


def test_the_action_is_on_record(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    ask(desk, lease)
    data = desk.events(0)[-1].data
    assert (data["subject"], data["token"], data["digest"]) == (
        {"action": ACTION}, lease.token, DIGEST,
    )  # fmt: skip


def test_who_does_not_hold_the_item_cannot_ask(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    with desk.refused("not_lease_holder"):
        ask(desk, lease, role="t_worker2")
    with desk.refused("stale_fence"):
        desk.call("t_worker", "eve_propose", kind="approval", item=lease.item,
                  token=lease.token + 1, digest=DIGEST)  # fmt: skip
    desk.clock.set(lease.expires_at)
    with desk.refused("not_lease_holder"):
        ask(desk, lease)
    assert "decision_proposed" not in desk.kinds(0)


@pytest.mark.parametrize(
    ("changed", "code"),
    [({"digest": None}, "22004"), ({"digest": "f" * 63}, "22023"), ({"digest": "F" * 64}, "22023"),
     ({"kind": "import"}, "22023"), ({"item": None}, "22023")],
)  # fmt: skip
def test_an_approval_is_bound_to_item_token_and_digest(
    desk: Desk, changed: dict[str, Any], code: str
) -> None:
    lease = desk.lease(item=desk.item())
    arguments = {"kind": "approval", "item": lease.item, "token": lease.token, "digest": DIGEST}
    with desk.refused(code):
        desk.call("t_worker", "eve_propose", **{**arguments, **changed})


def test_no_answer_in_time_is_the_answer_expired(desk: Desk) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    lease = desk.lease(item=desk.item())
    asked = ask(desk, lease, expires_at="2031-06-01 13:00Z")
    desk.hold("eve_return", lease, decision=asked.decision)
    desk.clock.advance(3599)
    desk.sweep()
    assert desk.phase(lease.item) == "held"
    desk.clock.advance(1)
    again = desk.lease()
    assert again.item == lease.item
    assert [(a["decision"], a["answer"]) for a in again.answers] == [(asked.decision, "expired")]
    for verdict in ("eve_accept", "eve_decline"):
        with desk.refused("55000"):
            desk.call("t_human", verdict, decision=asked.decision)
    desk.hold("eve_return", again)
    assert desk.lease().answers is None


def test_what_has_expired_is_not_waited_for(desk: Desk) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    lease = desk.lease(item=desk.item())
    asked = ask(desk, lease, expires_at="2031-06-01 12:01Z")
    desk.clock.advance(timedelta(minutes=2).total_seconds())
    assert desk.hold("eve_return", lease, decision=asked.decision).phase == "ready"


def test_the_rebuild_keeps_what_an_approval_is_bound_to(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    asked = ask(desk, lease)
    assert desk.call("t_operator", "eve_rebuild").clean
    row = desk.db.row("select d.token, d.digest from eve.decision as d where queue_id = %s"
                      " and decision = %s", [desk.id, asked.decision])  # fmt: skip
    assert tuple(row) == (lease.token, DIGEST)


def test_an_approval_cannot_be_stored_unbound(desk: Desk) -> None:
    with desk.refused("23514"):
        desk.db.rows(
            "insert into eve.decision (queue_id, decision, kind, subject, item, phase, proposer,"
            " proposed_at) values (%s, 1, 'approval', %s, 1, 'open', 'x', now())",
            [desk.id, Jsonb({})],
        )
