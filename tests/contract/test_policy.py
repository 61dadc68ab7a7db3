"""E-049 … E-055: the policy, read from the contract and stated nowhere else; revisions."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

import build
from support.database import Database
from support.desk import Desk
from support.servers import ROOT


@pytest.fixture
def policy(shared: Database) -> dict[str, Any]:
    found: dict[str, Any] = shared.value("select eve_contract() -> 'policy'")
    return found


def test_e_049_concurrent_leases_1(desk: Desk, policy: dict[str, Any]) -> None:
    assert policy["local_leases"] == 1
    for _ in range(2):
        desk.item()
    assert desk.acquire().granted
    assert desk.acquire().refusal == "concurrency_exhausted"


def test_e_050_lease_ttl_floor_60_s(desk: Desk, policy: dict[str, Any]) -> None:
    assert policy["ttl_floor_s"] == 60
    item = desk.item()
    assert desk.acquire(item=item, ttl="59.999999 s").refusal == "lease_ttl_out_of_range"
    assert desk.acquire(item=item, ttl="60 s").granted


def test_e_051_lease_ttl_ceiling_86400_s(desk: Desk, policy: dict[str, Any]) -> None:
    assert policy["ttl_ceiling_s"] == 86400
    item = desk.item()
    assert desk.acquire(item=item, ttl="86400.000001 s").refusal == "lease_ttl_out_of_range"
    assert desk.acquire(item=item, ttl="86400 s").granted


def test_e_052_maximum_acquisition_age_14400_s(desk: Desk, policy: dict[str, Any]) -> None:
    assert policy["max_age_s"] == 14400
    start = desk.clock.set("2031-06-01 12:00Z")
    lease = desk.lease(item=desk.item(), ttl="86400 s")
    assert (lease.expires_at - start, lease.clamped) == (timedelta(seconds=14400), True)
    with desk.refused("lease_age_exceeded"):
        desk.hold("eve_renew", lease, ttl="14400.000001 s")


def test_e_053_attempts_before_quarantine_3(desk: Desk, policy: dict[str, Any]) -> None:
    assert policy["attempts"] == 3
    item = desk.item()
    phases = []
    for _ in range(3):
        desk.lapse(desk.lease(item=item))
        desk.sweep()
        phases.append(desk.phase(item))
    assert phases == ["ready", "ready", "quarantined"]


def test_e_054_fairness_aging_interval_3600_s(desk: Desk, policy: dict[str, Any]) -> None:
    assert policy["aging_interval_s"] == 3600
    start = desk.clock.set("2031-06-01 12:00Z")
    desk.item(work_id="old", priority_class=1)
    for seconds, first in ((3599, "new"), (3600, "old")):
        desk.clock.set(start + timedelta(seconds=seconds))
        new = desk.item(work_id=f"new{seconds}", priority_class=0)
        lease = desk.lease()
        assert lease.work_id.startswith(first)
        desk.call("t_operator", "eve_cancel", item=new)
        if first == "new":
            assert desk.live() == 0


def test_e_055_the_derived_ceiling_is_10800_s(desk: Desk, policy: dict[str, Any]) -> None:
    """So four classes, ranks 0 to 3."""
    assert policy["starvation_ceiling_s"] == 3 * policy["aging_interval_s"] == 10800
    for rank in (-1, 4):
        with desk.refused("22023"):
            desk.submit(priority_class=rank)
    aged = "select eve._effective_rank(%s::smallint, now(), '1 h', now() + %s)"
    ranks = [desk.db.value(aged, [rank, timedelta(seconds=rank * 3600)]) for rank in range(4)]
    assert ranks == [0, 0, 0, 0]


def test_the_default_lease_lasts_900_s(desk: Desk, policy: dict[str, Any]) -> None:
    assert policy["ttl_s"] == 900
    start = desk.clock.set("2031-06-01 12:00Z")
    assert desk.lease(item=desk.item()).expires_at - start == timedelta(seconds=900)


def test_the_policy_is_written_in_one_place() -> None:
    """No other object file repeats the numbers of the contract."""
    numbers = re.compile(
        r"\b(86400|14400|3600|10800|900) s\b|interval '(60|900|3600|14400|86400) s'"
    )
    found = [
        change.name
        for change in build.Plan.read(ROOT).changes
        if numbers.search(re.sub(r"--.*", "", change.text))
    ]
    assert found == ["vocabulary/contract", "acquire/acquire"]  # the latter: a retry_after of 60 s


def test_a_class_takes_what_it_leaves_open_from_the_contract(shared: Database) -> None:
    for preset in ("job", "effect", "agent_task", "imported"):
        assert shared.value(
            "select (p.attempts, p.ttl_floor, p.ttl, p.ttl_ceiling, p.max_age)"
            " = (c.attempts, c.ttl_floor, c.ttl, c.ttl_ceiling, c.max_age)"
            ' from eve._policy_of(%s, \'{"replay_class": "safe"}\') as p, eve.contract as c',
            [preset],
        )


# --- revisions


def test_every_change_is_a_new_revision_that_events_name(desk: Desk) -> None:
    first = desk.item()
    lease = desk.lease(item=first)
    for revision in (2, 3):
        answer = desk.define(replay_class="safe", attempts=revision)
        assert answer.detail["unanswered"]["2"] == "When does the result stop being useful?"
        assert {**answer.detail, "unanswered": 0} == {
            "class": "default", "revision": revision, "unanswered": 0,
        }  # fmt: skip
    assert desk.submit().revision == 3
    desk.hold("eve_fail", lease)
    desk.clock.advance(3600)
    second = desk.lease(item=first)
    assert second.revision == 3
    admitted, acquired, *_, again = [
        e for e in desk.events(first) if e.kind in ("admitted", "acquired")
    ]
    assert (admitted.revision, acquired.revision, again.revision) == (1, 1, 3)
    assert desk.state(first).revision == 1
    revisions = desk.db.rows(
        "select revision, (policy).attempts, actor from eve.class_revision where queue_id = %s"
        " order by revision",
        [desk.id],
    )
    assert [tuple(row) for row in revisions] == [
        (1, 3, "t_operator"), (2, 2, "t_operator"), (3, 3, "t_operator"),
    ]  # fmt: skip


@pytest.mark.parametrize("order", ["loosened", "tightened"])
def test_the_stricter_of_admission_and_now_wins(desk: Desk, order: str) -> None:
    """Field by field, whichever came first; both revisions are recorded."""
    desk.clock.set("2031-06-01 12:00Z")
    loose: dict[str, Any] = {
        "attempts": 5,
        "ttl_floor": "60 s",
        "ttl_ceiling": "7200 s",
        "max_age": "7200 s",
    }
    strict: dict[str, Any] = {"attempts": 2, "ttl_floor": "120 s", "ttl_ceiling": "600 s",
              "max_age": "900 s",
              "ttl": "300 s"}  # fmt: skip
    first, second = (strict, loose) if order == "loosened" else (loose, strict)
    desk.define(replay_class="safe", **first)
    item = desk.item()
    desk.define(replay_class="safe", **second)
    for ttl in ("119 s", "601 s"):
        assert desk.acquire(item=item, ttl=ttl).refusal == "lease_ttl_out_of_range"
    lease = desk.lease(item=item, ttl="600 s")
    assert (lease.attempts_left, lease.revision) == (1, 3)
    desk.clock.advance(400)
    with desk.refused("lease_age_exceeded"):
        desk.hold("eve_renew", lease, ttl="501 s")
    acquired = desk.events(item)[-1]
    assert (desk.state(item).revision, acquired.revision) == (2, 3)


def test_a_stricter_completion_test_reaches_what_was_admitted_before(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    desk.define(preset="agent_task", replay_class="safe")
    assert desk.complete(lease).phase == "completed"


def test_a_payload_that_a_newer_revision_refuses_is_held(desk: Desk) -> None:
    """And released by a revision that takes it."""
    item = desk.item(payload={"text": "x" * 100})
    desk.define(replay_class="safe", payload_limit=50)
    assert desk.acquire(item=item).refusal == "not_acquirable"
    assert not desk.acquire().granted
    assert (desk.phase(item), desk.holds(item)) == ("held", ["payload_invalid"])
    desk.define(replay_class="safe", payload_limit=60)
    assert desk.phase(item) == "held"
    desk.define(replay_class="safe", payload_limit=5000)
    assert desk.phase(item) == "ready"
    assert desk.lease(item=item).granted


def test_an_unknown_replay_class_is_stored_and_held_until_a_revision_answers(desk: Desk) -> None:
    desk.define("new", replay_class="unknown")
    answer = desk.submit(**{"class": "new"})
    assert (answer.decision, answer.reason) == ("HOLD", "replay_class_unknown")
    assert desk.acquire(item=answer.item).refusal == "not_acquirable"
    assert desk.call("t_auditor", "eve_item", item=answer.item).status == "needs_human"
    desk.define("new", replay_class="safe")
    assert desk.phase(answer.item) == "ready"


def test_a_margin_that_a_newer_revision_asks_for_counts(desk: Desk) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    item = desk.item(deadline="2031-06-01 13:00Z")
    desk.define(replay_class="safe", completion_margin="2 h")
    assert desk.acquire(item=item).refusal == "not_acquirable"
    assert not desk.acquire().granted
    assert (desk.phase(item), desk.events(item)[-1].reason) == ("expired", "deadline_passed")


def test_no_class_no_admission(desk: Desk) -> None:
    """Without a default class submit says which line to run; another unknown one is unknown."""
    bare = Desk(desk.db, desk.db.make_queue(f"{desk.queue}-bare", replay_class=None))
    with desk.refused("22023") as refused:
        bare.submit()
    hint = refused.error.diag.message_hint or ""
    line = re.search(r"select (eve_define_class\(.*\));", hint)
    assert line
    desk.db.rows(f"select {line[1]}", role="t_operator")
    assert bare.submit().decision == "ADMIT"
    with desk.refused("P0002"):
        bare.submit(**{"class": "another"})
