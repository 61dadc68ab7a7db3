"""Milestones, questions, states and checks: answered from evidence, and gone with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from support.database import Database, Row
from support.desk import Desk
from support.desk import at as instant

T = instant("2031-06-01 12:00")
CHECKS = [f"A1-{n:03d}" for n in range(87, 106)] + [f"A2-{n}" for n in range(133, 163)]
QUESTIONS = [f"A2-{n:03d}" for n in range(1, 11)]
STATES = [f"A2-{n:03d}" for n in range(63, 82)]
MILESTONES = [f"A1-{n:03d}" for n in range(1, 6)]
FULL: dict[str, Any] = {
    "replay_class": "destination_protected",
    "protection": {
        "scope": "account", "retention": "30 days", "canonical_inputs": "body",
        "conflict_behaviour": "409", "authority": "the store", "after_retention": "reconcile",
    },
    "evidence": "required", "freshness": "10 min", "measure_window": "60 s",
    "dependencies": ["mail"], "item_limit": 2, "byte_limit": 10_000, "shared_item_limit": 50,
    "age_limit": "1 day", "wait_hint": "30 s", "coalesce": "absorb",
    "cancel_boundary": "effect_start", "effect_starts": True, "completion_test": "effects",
    "schema": {"type": "object"}, "backoff_base": "0 s",
}  # fmt: skip
ASK: dict[str, Any] = {
    "class": "full", "deadline": T + timedelta(days=1), "minimum_completion_margin": "1 min",
    "value_until": T + timedelta(days=2), "dependency_revisions": {"schema": "v3"},
    "expected_effects": ["sent"],
}  # fmt: skip


@pytest.fixture(scope="module")
def told(learned: Database) -> Desk:
    """A class that declares everything, an item that went the whole way, one that met trouble."""
    desk = Desk(learned, learned.make_queue("told"))
    desk.approve("cloud", 5)
    desk.clock.set(T - timedelta(seconds=60))
    desk.define("full", **FULL)
    learned.call("t_operator", "eve_set_health", queue="told", dependency="mail",
                 health="healthy", capacity=3, valid_for="1 day")  # fmt: skip
    drilled = desk.submit(work_id="drilled", coalescing_key="d", **ASK)
    assert drilled.reason == "capacity_evidence_missing"
    desk.calls("t_operator", "eve_measure", **{"class": "full"})
    lease = desk.lease(item=drilled.item, pool="cloud")
    desk.lapse(lease)
    desk.call("t_operator", "eve_recover")
    desk.clock.set(T)
    lease = desk.lease(item=drilled.item, pool="cloud")
    desk.hold("eve_observe_effect", lease, effect_identity="sent", evidence={"kind": "receipt"})
    assert desk.complete(lease).phase == "verified"
    desk.calls("t_operator", "eve_measure", **{"class": "full"})
    done = desk.item(work_id="done", coalescing_key="e", **ASK)
    lease = desk.lease(item=done, pool="cloud")
    desk.hold("eve_start_effect", lease, effect_identity="sent")
    desk.hold("eve_observe_effect", lease, effect_identity="sent", evidence={"kind": "receipt"})
    assert desk.complete(lease, result={"n": 1}).phase == "verified"
    desk.item(coalescing_key="f", **ASK)
    desk.item(coalescing_key="g", **ASK)
    assert desk.submit(coalescing_key="h", **ASK).reason == "item_budget_exhausted"
    desk.calls("t_operator", "eve_measure", **{"class": "full"})
    desk.item(work_id="bare")
    return desk


def answers(desk: Desk, work_id: str, role: str = "t_auditor") -> dict[str, Row]:
    return {row.code: row for row in desk.calls(role, "eve_checks", work_id=work_id)}


NEEDS_TROUBLE = {"A2-162"}
NOT_FOR_THE_DONE = {"A1-100"}


@pytest.mark.parametrize("code", CHECKS)
def test_a1_087_to_a1_105_a2_133_to_a2_162_a_check_is_answered_from_evidence(
    told: Desk, code: str
) -> None:
    row = answers(told, "drilled" if code in NEEDS_TROUBLE else "done")[code]
    assert (row.kind, row.answer, row.unavailable) == ("check", True, []), row
    assert row.evidence
    assert row.name


@pytest.mark.parametrize("code", CHECKS + QUESTIONS)
def test_without_its_evidence_a_check_has_no_answer(told: Desk, code: str) -> None:
    """Each fact that a check names is taken away: then nothing is claimed."""
    work_id = "drilled" if code in NEEDS_TROUBLE else "done"
    facts = facts_of(told, work_id)
    row = answers(told, work_id)[code]
    for key in row.evidence:
        name = {"missing_telemetry": "consulted", "fresh": "fault"}.get(key, key)
        if code == "A1-093" and key == "dependencies":
            name = "dependency_capacity"
        less = {k: v for k, v in facts.items() if k != name}
        if key == "reserved_capacity":
            less.pop("shared_item_limit")
        found = judged(told, less)[code]
        assert found.answer is not True, (key, found)
        assert key in found.unavailable, (key, found)


@pytest.mark.parametrize("code", QUESTIONS)
def test_a2_001_to_a2_010_ten_questions_are_answered_apart_from_storing(
    told: Desk, code: str
) -> None:
    full, bare = answers(told, "done"), answers(told, "bare")
    assert full["A2-069"].answer
    assert bare["A2-069"].answer
    assert full[code].answer is True
    unsaid = {"A2-002", "A2-003", "A2-007"}
    assert bare[code].answer is (None if code in unsaid else True)


def test_a2_142_and_others_are_false_where_the_evidence_says_no(told: Desk) -> None:
    facts = facts_of(told, "done")
    for change, code in (
        ({"replay_class": "non_repeatable"}, "A2-148"), ({"replay_class": "unknown"}, "A1-095"),
        ({"consulted": "stale", "decision": "ADMIT"}, "A1-092"), ({"attempts": 9}, "A2-147"),
        ({"acquired_after": 1}, "A2-161"), ({"uncertain": 3}, "A1-102"),
        ({"uncertain": 3}, "A2-160"), ({"work_id": facts["effect"]}, "A1-088"),
        ({"completion_test": "report"}, "A1-103"), ({"boundary": "immediate"}, "A2-152"),
        ({"payload": "invalid"}, "A2-143"), ({"holds": [{"reason": "x"}]}, "A1-100"),
        ({"protection": {"retention": "1 hour"}}, "A1-096"),
    ):  # fmt: skip
        assert judged(told, {**facts, **change})[code].answer is False, code


def facts_of(desk: Desk, work_id: str) -> dict[str, Any]:
    facts = desk.db.value(
        "select jsonb_strip_nulls(eve._facts_of(eve._look(%s, '{auditor}'), i.item, %s))"
        " from eve.intent as i where i.queue_id = %s and i.work_id = %s",
        [desk.queue, T, desk.id, work_id],
    )
    assert isinstance(facts, dict)
    return facts


def judged(desk: Desk, facts: dict[str, Any]) -> dict[str, Row]:
    return {r.code: r for r in desk.db.rows("select * from eve._checks_of(%s)", [Jsonb(facts)])}


# --- the five milestones and the nineteen states, each combination shown


def held_as_invalid(desk: Desk) -> int:
    item = desk.item(payload={"n": "x" * 50})
    desk.define(replay_class="safe", payload_limit=10)
    desk.acquire()
    return item


def no_longer_useful(desk: Desk) -> int:
    desk.clock.set(T)
    item = desk.item(value_until=T + timedelta(seconds=5))
    desk.clock.set(T + timedelta(seconds=5))
    return item


def unassigned(desk: Desk) -> int:
    return desk.item()


def effect_incomplete(desk: Desk) -> int:
    item = desk.item(expected_effects=["sent"], completion_test="effects")
    desk.hold("eve_start_effect", desk.lease(item=item), effect_identity="sent")
    return item


def lost_after_the_effect(desk: Desk) -> int:
    desk.define(replay_class="non_repeatable")
    item = desk.item()
    lease = desk.lease(item=item)
    desk.hold("eve_start_effect", lease)
    desk.lapse(lease)
    desk.call("t_operator", "eve_recover")
    return item


def over(act: str, **arguments: Any) -> Callable[[Desk], int]:
    def made(desk: Desk) -> int:
        item = desk.item()
        desk.call("t_operator", act, item=item, **arguments)
        return item

    return made


def merged(desk: Desk) -> int:
    desk.define(replay_class="safe", coalesce="replace")
    first = desk.item(coalescing_key="k")
    desk.item(coalescing_key="k")
    return first


def finished(desk: Desk) -> int:
    item = desk.item(expected_effects=["sent"], completion_test="effects")
    lease = desk.lease(item=item)
    desk.hold("eve_observe_effect", lease, effect_identity="sent", evidence={"kind": "receipt"})
    desk.complete(lease)
    return item


def measured(desk: Desk) -> int:
    desk.clock.set(T)
    desk.define(replay_class="safe", evidence="limit", evidence_limit=9, measure_window="60 s",
                schema={"type": "object"})  # fmt: skip
    desk.calls("t_operator", "eve_measure")
    desk.complete(desk.lease(item=desk.item()))
    item = desk.item(deadline=T + timedelta(days=1), value_until=T + timedelta(days=1))
    desk.clock.set(T + timedelta(seconds=60))
    desk.complete(desk.lease(item=desk.item()))
    desk.calls("t_operator", "eve_measure")
    return item


def past(desk: Desk) -> int:
    item = no_longer_useful(desk)
    desk.acquire()
    return item


@pytest.fixture
def desk(learned: Database, request: pytest.FixtureRequest) -> Iterator[Desk]:
    name = f"q{abs(hash(request.node.nodeid))}"
    yield Desk(learned, learned.make_queue(name))
    learned.clock.set("2031-06-01 12:00Z")


COMBINATIONS = {  # stored, valid, eligible, leased, completed
    "A1-006": (held_as_invalid, (True, False, False, False, False)),
    "A1-007": (no_longer_useful, (True, True, False, False, False)),
    "A1-008": (unassigned, (True, True, True, False, False)),
    "A1-009": (effect_incomplete, (True, True, True, True, False)),
    "A1-010": (lost_after_the_effect, (True, True, False, False, False)),
    "A1-005": (finished, (True, True, False, False, True)),
}


@pytest.mark.parametrize("line", COMBINATIONS)
def test_a1_001_to_a1_010_a2_082_five_milestones_never_collapse(desk: Desk, line: str) -> None:
    make, expected = COMBINATIONS[line]
    item = make(desk)
    found = {r.code: r for r in desk.calls("t_auditor", "eve_checks", item=item)}
    assert tuple(found[code].answer for code in MILESTONES) == expected
    assert found["A2-075"].answer is (line == "A1-010")
    if line == "A1-009":
        assert found["A2-074"].answer is False


SHOWN: dict[str, Callable[[Desk], int]] = {
    "A2-063": unassigned, "A2-064": over("eve_cancel"), "A2-065": measured, "A2-066": measured,
    "A2-067": unassigned, "A2-069": unassigned, "A2-070": measured, "A2-071": merged,
    "A2-072": unassigned, "A2-073": effect_incomplete, "A2-074": finished,
    "A2-075": lost_after_the_effect, "A2-076": lost_after_the_effect, "A2-077": past,
    "A2-078": lambda desk: desk.quarantined(), "A2-079": finished, "A2-080": measured,
    "A2-081": unassigned,
}  # fmt: skip


@pytest.mark.parametrize("code", SHOWN)
def test_a2_063_to_a2_081_each_state_is_shown_from_evidence(desk: Desk, code: str) -> None:
    item = SHOWN[code](desk)
    found = {r.code: r for r in desk.calls("t_auditor", "eve_checks", item=item)}
    assert (found[code].kind, found[code].answer) == ("state", True), found[code]
    assert sorted(code for code, row in found.items() if row.kind == "state") == STATES


def test_a2_068_what_was_rejected_before_storage_is_no_item(desk: Desk) -> None:
    refused = desk.submit(deadline="2001-01-01Z")
    assert refused.item is None
    said = desk.call("t_auditor", "eve_statement", submission=refused.submission)
    assert "rejected intent" in said.statement
    item = desk.item()
    found = {r.code: r for r in desk.calls("t_auditor", "eve_checks", item=item)}
    assert found["A2-068"].answer is False


# --- the statement

SLOTS = {
    "policy", "class", "depth", "bytes", "oldest_age", "arrivals", "completions", "window",
    "start_delay", "deadline", "dependency_capacity", "stored_item", "lease", "fence", "attempt",
    "terminal_record", "observed_at",
}  # fmt: skip


def test_a2_163_the_statement_fills_every_slot(told: Desk) -> None:
    said = told.call("t_auditor", "eve_statement", work_id="done")
    assert set(said.slots) == SLOTS
    assert said.unavailable == []
    for word in ("class full", "items and", "arrivals", "fence 1", "attempt 1", "verified by"):
        assert word in said.statement, word


def test_a2_164_a1_042_an_empty_slot_reads_unavailable_never_zero(told: Desk) -> None:
    said = told.call("t_auditor", "eve_statement", work_id="bare")
    assert {"arrivals", "completions", "window", "deadline", "lease", "fence"} <= set(
        said.unavailable
    )
    assert " 0 " not in said.statement
    assert "unavailable arrivals" in said.statement
    assert "the snapshot observed at unavailable" in said.statement


def test_a2_165_to_a2_170_the_statement_says_what_it_does_not_claim(told: Desk) -> None:
    said = told.call("t_auditor", "eve_statement", work_id="done").statement
    for claim in (
        "every stored item runs", "durability makes a payload valid or authorised",
        "the measured drain persists", "a lease alone prevents duplicate effects",
        "a wait hint reserves capacity", "one policy fits every workload",
    ):  # fmt: skip
        assert claim in said.split("It does not claim")[1]


def test_a_statement_names_one_thing(desk: Desk) -> None:
    refused = desk.submit(deadline="2001-01-01Z")
    with desk.refused("22023"):
        desk.call("t_auditor", "eve_statement", item=desk.item(), submission=refused.submission)
    with desk.refused("P0002"):
        desk.call("t_auditor", "eve_statement", submission=refused.submission + 1000)
