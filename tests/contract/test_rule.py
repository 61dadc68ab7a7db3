"""E-001 … E-011: one door, one step, one truth."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from support.database import Database, Row
from support.desk import Desk, changed

GATES = (  # in contract order
    "fleet_halted",
    "lease_ttl_out_of_range",
    "quarantined",
    "retry_budget_exhausted",
    "not_acquirable",
    "spend_not_approved",
    "concurrency_exhausted",
    "unknown_dependency",
    "dependency_cycle",
    "dependency_not_ready",
)


def halted(desk: Desk) -> dict[str, Any]:
    item = desk.item()
    desk.call("t_operator", "eve_halt")
    return {"item": item}


def ttl(desk: Desk) -> dict[str, Any]:
    return {"item": desk.item(), "ttl": "59 s"}


def quarantined(desk: Desk) -> dict[str, Any]:
    return {"item": desk.quarantined()}


def spent(desk: Desk) -> dict[str, Any]:
    item = desk.item()
    for _ in range(2):
        desk.lapse(desk.lease(item=item))
        desk.call("t_worker", "eve_recover")
    desk.define(replay_class="safe", attempts=2)
    return {"item": item}


def not_ready(desk: Desk) -> dict[str, Any]:
    return {"item": desk.done()}


def unapproved(desk: Desk) -> dict[str, Any]:
    desk.call("t_operator", "eve_define_pool", pool="cloud")
    return {"item": desk.item(), "pool": "cloud"}


def occupied(desk: Desk) -> dict[str, Any]:
    desk.lease(item=desk.item())
    return {"item": desk.item()}


def unknown(desk: Desk) -> dict[str, Any]:
    return {"item": desk.item(after=["nobody"])}


def cycle(desk: Desk) -> dict[str, Any]:
    return {"item": desk.item(work_id="me", after=["me"])}


def waiting(desk: Desk) -> dict[str, Any]:
    desk.item(work_id="parent")
    return {"item": desk.item(after=["parent"])}


REFUSED: dict[str, Callable[[Desk], dict[str, Any]]] = dict(
    zip(
        GATES,
        (halted, ttl, quarantined, spent, not_ready, unapproved, occupied, unknown, cycle, waiting),
        strict=True,
    )
)


@pytest.mark.parametrize("code", GATES)
def test_e_001_a_refused_acquisition_changes_nothing(desk: Desk, code: str) -> None:
    """Housekeeping aside, which has been done in this second already."""
    desk.clock.set("2031-06-01 12:00Z")
    arguments = REFUSED[code](desk)
    desk.call("t_operator", "eve_sweep")
    before = desk.census()
    answer = desk.acquire(**arguments)
    assert (answer.granted, answer.refusal) == (False, code)
    assert changed(before, desk.census()) == []
    keyed = desk.acquire(**arguments, idempotency_key="k")
    assert keyed.refusal == code
    assert set(changed(before, desk.census())) <= {"request"}


def test_e_001_a_refusal_of_the_pick_changes_nothing(desk: Desk) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    desk.lease(item=desk.item())
    desk.item()
    before = desk.census()
    wide: list[dict[str, Any]] = [{}, {"ttl": "1 s"}, {"max_items": 100}]
    for arguments in wide:
        assert desk.acquire(**arguments).refusal
    desk.call("t_human", "eve_halt")
    before = desk.census()
    assert desk.acquire().refusal == "fleet_halted"
    assert changed(before, desk.census()) == []


def test_e_001_nor_does_one_that_the_class_of_the_picked_item_makes(desk: Desk) -> None:
    """The queue's window of lease times is wide enough, that of the class is not."""
    desk.clock.set("2031-06-01 12:00Z")
    desk.define("quick", replay_class="safe", ttl_floor="1 s")
    desk.item()
    desk.call("t_operator", "eve_sweep")
    before = desk.census()
    for many in (1, 5):
        assert desk.acquire(ttl="5 s", max_items=many).refusal == "lease_ttl_out_of_range"
    assert changed(before, desk.census()) == []


def test_e_002_every_check_runs_every_time(desk: Desk) -> None:
    """One acquisition that fails all of them: the first is the code, all are in the detail."""
    desk.spoiled = True
    desk.item(work_id="parent")
    item = desk.item(after=["parent", "nobody"])
    for work_id in ("parent", "nobody"):
        asked = desk.call("t_worker", "eve_propose", kind="waiver", item=item, work_id=work_id)
        desk.call("t_human", "eve_accept", decision=asked.decision)
    desk.hold("eve_fail", desk.lease(item=item), disposition="dead")
    desk.lease(item=desk.item())
    desk.define(replay_class="safe", attempts=1)
    desk.db.rows(  # no verb opens an edge again
        "update eve.dependency set open = true where queue_id = %s", [desk.id]
    )
    answer = desk.acquire(item=item, ttl="1 s")
    assert answer.refusal == "lease_ttl_out_of_range"
    assert answer.detail["refusals"] == [
        "lease_ttl_out_of_range",
        "quarantined",
        "retry_budget_exhausted",
        "not_acquirable",
        "concurrency_exhausted",
        "unknown_dependency",
        "dependency_not_ready",
    ]
    desk.call("t_operator", "eve_halt")
    assert desk.acquire(item=item, ttl="1 s").refusal == "fleet_halted"
    assert desk.acquire(item=item, ttl="1 s").detail["refusals"][1:] == answer.detail["refusals"]


FACTS: dict[
    str, tuple[dict[str, Any], dict[str, Any]]
] = {  # gate → what makes it refuse, and what lets it pass
    "fleet_halted": ({"halted": True}, {"halted": False}),
    "lease_ttl_out_of_range": ({"ttl": "1 s"}, {"ttl": "60 s"}),
    "quarantined": ({"phase": "quarantined"}, {"phase": "ready"}),
    "retry_budget_exhausted": ({"attempts": 3}, {"attempts": 2}),
    "not_acquirable": ({"blocked": "class is paused"}, {"blocked": None}),
    "spend_not_approved": ({"slots": 0}, {"slots": 1}),
    "concurrency_exhausted": ({"free": False}, {"free": True}),
    "unknown_dependency": ({"unknown_edges": ["a"]}, {"unknown_edges": None}),
    "dependency_cycle": ({"cycle": ["a"]}, {"cycle": None}),
    "dependency_not_ready": ({"open_edges": ["a"]}, {"open_edges": None}),
}


def test_e_002_all_gates_judge_all_combinations_in_order(shared: Database) -> None:
    """The pure decision: 1,024 doors, each refused by exactly the gates that fail, in order."""
    doors: list[dict[str, Any]] = []
    for fails in itertools.product([False, True], repeat=len(GATES)):
        facts: dict[str, Any] = {
            "named": True, "ttl_floor": "60 s", "ttl_ceiling": "1 day", "budget": 3,
        }  # fmt: skip
        expected = []
        for code, fail in zip(GATES, fails, strict=True):
            facts |= FACTS[code][not fail]
            expected += [code] if fail else []
        if "quarantined" in expected and "not_acquirable" not in expected:
            expected.insert(expected.index("quarantined") + 1 + fails[3], "not_acquirable")
        doors.append({"facts": facts, "expected": expected or None})
    waits = {**doors[0]["facts"], "phase": "held"}
    doors += [
        {"facts": {**waits, "gated_hold": True}, "expected": ["not_acquirable"]},
        {"facts": {**waits, "gated_hold": False}, "expected": ["not_acquirable"]},
        {"facts": {**waits, "gated_hold": True, "open_edges": ["a"]},
         "expected": ["dependency_not_ready"]},
        {"facts": {**waits, "gated_hold": False, "open_edges": ["a"]},
         "expected": ["not_acquirable", "dependency_not_ready"]},
    ]  # fmt: skip
    wrong = shared.rows(
        """
        select d.value -> 'facts', d.value -> 'expected',
            eve._gates(jsonb_populate_record(null::eve.door, d.value -> 'facts'))
        from jsonb_array_elements(%s) as d (value)
        where to_jsonb(eve._gates(jsonb_populate_record(null::eve.door, d.value -> 'facts')))
            is distinct from nullif(d.value -> 'expected', 'null')
        """,
        [Jsonb(doors)],
    )
    assert wrong == []


def test_e_003_an_acquisition_mints_the_next_token(desk: Desk) -> None:
    item = desk.item()
    for token in (1, 2, 3):
        lease = desk.lease(item=item)
        assert lease.token == token
        assert lease.lease == f"{item}.{token}"
        desk.lapse(lease)
        desk.call("t_worker", "eve_recover")
    other = desk.item()
    assert desk.lease(item=other).token == 1


HOLDER_WRITES: dict[str, dict[str, Any]] = {
    "eve_renew": {},
    "eve_complete": {},
    "eve_fail": {},
    "eve_return": {},
    "eve_start_effect": {},
    "eve_observe_effect": {},
    "eve_fence": {},
}


@pytest.mark.parametrize("function", HOLDER_WRITES)
def test_e_004_every_holder_write_presents_the_token(desk: Desk, function: str) -> None:
    lease = desk.lease(item=desk.item())
    for token in (lease.token + 1, lease.token - 1, -1):
        with desk.refused("stale_fence"):
            desk.call("t_worker", function, item=lease.item, token=token)
    assert desk.kinds(lease.item) == ["admitted", "acquired"]
    desk.hold(function, lease)


def test_e_004_batches_answer_stale_tokens_row_by_row(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    for function, more in (("eve_complete_batch", {}), ("eve_turn", {"worker": "w"})):
        answer = desk.calls("t_worker", function, items=[lease.item], tokens=[7], **more)[0]
        assert (answer.accepted, answer.refusal) == (False, "stale_fence")
    desk.complete(lease)


def test_e_004_a_child_is_submitted_under_a_live_token(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    answer = desk.db.row(
        "select (eve_submit(%s, under => row(%s, %s)::eve_lease)).*",
        [desk.queue, lease.item, lease.token + 1],
        role="t_worker",
    )
    assert (answer.decision, answer.reason, answer.item) == ("REJECT", "lease_not_live", None)
    desk.complete(lease)


def test_e_006_three_orphans_are_recovered_by_three_events(desk: Desk) -> None:
    """A lapsed lease, a lease whose row is gone, a lease row with an older token: one sweep."""
    desk.clock.set("2031-06-01 12:00Z")
    desk.approve("cloud", 3)
    desk.hold("eve_return", desk.lease(item=desk.item(priority_class=3)))
    for _ in range(2):
        desk.item()
    lapsed, missing, superseded = desk.leases(3, ttl="2 h")
    assert superseded.token == 2
    desk.db.rows(
        "delete from eve.held_slot where queue_id = %s and item = %s", [desk.id, missing.item]
    )
    desk.db.rows(
        "update eve.held_slot set token = 1 where queue_id = %s and item = %s",
        [desk.id, superseded.item],
    )
    desk.db.rows(
        "update eve.held_slot set expires_at = eve.now() where queue_id = %s and item = %s",
        [desk.id, lapsed.item],
    )
    assert desk.sweep().recovered == 3
    assert [desk.kinds(x.item)[-1] for x in (lapsed, missing, superseded)] == [
        "lease_expired",
        "lease_missing",
        "lease_superseded",
    ]


@pytest.mark.parametrize(
    "role", ["t_producer", "t_worker", "t_verifier", "t_operator", "t_auditor"]
)
def test_e_007_rejection_and_unpark_are_acts_of_a_human(desk: Desk, role: str) -> None:
    item = desk.quarantined()
    with desk.refused("terminal_state_not_owned"):
        desk.call(role, "eve_reject", item=item, reason="no")
    with desk.refused("terminal_state_not_owned"):
        desk.call(role, "eve_unpark", item=item)
    assert desk.phase(item) == "quarantined"
    desk.call("t_human", "eve_unpark", item=item)
    desk.call("t_human", "eve_reject", item=item, reason="no")
    assert desk.phase(item) == "rejected"


def story(desk: Desk) -> list[int]:
    """Items that between them have lived through every kind of event that a verb can append."""
    desk.clock.set("2031-06-01 12:00Z")
    desk.define("out", preset="effect", replay_class="reconcilable", cancel_boundary="effect_start")
    desk.define("judged", preset="agent_task", replay_class="safe")
    items = [desk.done(), desk.quarantined(), desk.uncertain()]
    desk.call("t_human", "eve_unpark", item=items[1])
    desk.call("t_operator", "eve_reprioritise", item=items[1], priority_class=0)
    retried = desk.item()
    desk.hold("eve_renew", desk.lease(item=retried), progress={"n": 1}, checkpoint={"at": 3})
    desk.hold("eve_fail", desk.db.row("select %s as item, 1 as token", [retried]))
    returned = desk.item()
    desk.hold("eve_return", desk.lease(item=returned))
    lapsed = desk.item()
    desk.lapse(desk.lease(item=lapsed))
    desk.sweep()
    parent = desk.item(work_id="parent")
    child = desk.item(after=["parent"])
    desk.complete(desk.lease(item=parent))
    late = desk.item(not_before=desk.clock.advance(0).isoformat(), deadline="2031-06-02 12:00Z")
    judged = desk.item(**{"class": "judged"})
    desk.complete(desk.lease(item=judged))
    desk.call("t_verifier", "eve_verify", item=judged)
    desk.call("t_verifier", "eve_compensate", item=judged, effect_identity="e",
              evidence={"kind": "note"})  # fmt: skip
    out = desk.item(**{"class": "out"})
    lease = desk.lease(item=out)
    desk.hold("eve_start_effect", lease)
    desk.call("t_operator", "eve_cancel", item=out)
    assert desk.complete(lease).phase == "reported"
    desk.call("t_verifier", "eve_observe_effect", item=out)
    cancelled = desk.item()
    desk.lease(item=cancelled)
    desk.call("t_producer", "eve_cancel", item=cancelled)
    rejected = desk.item()
    desk.call("t_human", "eve_reject", item=rejected, reason="no")
    desk.call("t_verifier", "eve_reconcile", item=items[2], finding="absent")
    spent = desk.item()
    desk.lapse(desk.lease(item=spent))
    desk.sweep()
    desk.define(replay_class="safe", attempts=1)
    asked = desk.call("t_operator", "eve_propose", kind="import")
    desk.call("t_human", "eve_accept", decision=asked.decision)
    imported = desk.call(
        "t_verifier", "eve_settle_import", decision=asked.decision, work_id="elsewhere"
    ).item
    desk.clock.set("2031-06-02 12:00Z")
    desk.sweep()
    while desk.acquire(item=None, role="t_worker2").item:
        desk.clock.advance(901)
        desk.sweep()
    dead = desk.quarantined()
    desk.clock.advance(31 * 86400)
    desk.sweep()
    return [
        *items, retried, returned, lapsed, parent, child, late, judged, out, cancelled, rejected,
        spent, imported, dead,
    ]  # fmt: skip


STORY_KINDS = {
    "admitted", "held", "imported", "released", "acquired", "renewed", "effect_started",
    "effect_observed", "reported", "completed", "verified", "failed", "returned", "lease_expired",
    "parked", "reconciled", "cancel_requested", "cancelled", "expired", "rejected", "unparked",
    "reprioritised", "compensated", "dead",
}  # fmt: skip


def folded(events: list[Row]) -> dict[str, Any]:
    """The counters of one item, counted here from its events alone."""
    taken = [e for e in events if e.kind == "acquired"]
    return {
        "version": len(events),
        "attempts": len(taken),
        "token": max([e.token for e in events if e.token], default=0),
        "allowance": sum(e.attempts for e in events if e.kind == "unparked"),
        "credits": sum(e.attempts or 0 for e in events if e.kind == "returned"),
        "rank": [e.rank for e in events if e.rank is not None][-1],
        "phase": events[-1].phase,
    }


def test_e_008_every_counter_is_folded_from_the_ledger(desk: Desk) -> None:
    seen: set[str] = set()
    for item in story(desk):
        events = desk.events(item)
        seen |= {event.kind for event in events}
        state = desk.state(item)
        counted = folded(events)
        assert {name: getattr(state, name) for name in counted} == counted
        assert [event.version for event in events] == list(range(1, len(events) + 1))
    assert seen == STORY_KINDS
    assert desk.live() == 0


def test_e_009_live_fold_and_replay_are_one_step(desk: Desk) -> None:
    """One function, twice called; and at each version of each history they agree."""
    assert desk.db.value(
        "select aggtransfn::oid = 'eve.step'::regproc from pg_aggregate"
        " where aggfnoid = 'eve.replay'::regproc"
    )
    fold = desk.db.value("select prosrc from pg_proc where oid = 'eve._fold'::regproc")
    assert "eve.step(" in fold
    steps = desk.db.rows("select 1 from pg_proc where prorettype = 'eve.state'::regtype")
    assert len(steps) == 2  # the step and the aggregate: nothing else makes a state
    items = story(desk)
    for item in items:
        live = desk.db.value(
            "select to_jsonb(queue_state) from eve.work_item where queue_id = %s and item = %s",
            [desk.id, item],
        )
        assert desk.call("t_auditor", "eve_replay", item=item)[0] == live
    phases = desk.db.value(
        """
        select count(*)
        from eve.ledger as l
        cross join lateral (
            select (eve.replay(eve._event(p.kind, p.phase, p.at, p.principal, p.worker, p.epoch,
                p.revision, p.token, p.pool, p.slot, p.due_at, p.rank, p.attempts, p.reason)
                order by p.version)).*
            from eve.ledger as p
            where p.queue_id = l.queue_id and p.item = l.item and p.version <= l.version
        ) as s
        where l.queue_id = %s and (s.version <> l.version or s.phase is distinct from l.phase)
        """,
        [desk.id],
    )
    assert phases == 0


def test_e_010_dropping_and_rebuilding_gives_the_identical_value(desk: Desk) -> None:
    story(desk)
    desk.item(after=["nobody"])
    desk.lease(item=desk.item())
    tables = ("work_item", "ready", "hold", "held_slot", "dependency", "free_slot")
    kept = {
        table: desk.db.rows(f"select t::text from eve.{table} as t order by 1") for table in tables
    }
    for table in ("work_item", "ready", "held_slot"):
        desk.db.rows(f"delete from eve.{table} where queue_id = %s", [desk.id])
    rebuilt = desk.call("t_operator", "eve_rebuild")
    assert (rebuilt.clean, rebuilt.replay, rebuilt.indexes) == (True, "equal", "equal")
    for table in tables:
        now = desk.db.rows(f"select t::text from eve.{table} as t order by 1")
        if table != "hold":  # a look at the edges comes again
            assert now == kept[table], table
        assert len(now) == len(kept[table])


def test_e_011_the_contract_names_itself(shared: Database) -> None:
    record = shared.value("select eve_contract()", role="t_auditor")
    assert record["name"] == "eve.queue-semantics.v1"
    assert record["revision"] >= 1
    assert record["decision"] == "queue-semantics-enforced"
    body = shared.value("select (eve_contract() - 'digest')::text")
    assert record["digest"] == hashlib.sha256(body.encode()).hexdigest()
    assert len(record["semantics"]) == 11
    assert shared.value("select eve_contract()", role="t_producer") == record
