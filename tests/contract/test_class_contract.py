"""A2-020 … A2-062: the twenty-two fields of a class's contract, the twenty-one questions."""

from __future__ import annotations

import re
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from support.database import Database
from support.desk import Desk

PRESETS = ("job", "effect", "agent_task", "imported")
PROTECTION = {
    "scope": "payee", "retention": "7 days", "canonical_inputs": "all", "conflict_behaviour": "409",
    "authority": "bank", "after_retention": "reconcile",
}  # fmt: skip

# id → field, settings that declare it, who answers it where a class from preset job says nothing
FIELDS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "A2-020": ("intent_identity", {"effect_unique": True}, "preset job"),
    "A2-021": ("caller_scope", {"submitters": ["t_producer"]}, None),
    "A2-022": ("work_class", {"own_lane": True, "limit_per_key": 2}, None),
    "A2-023": ("value_window", {"value_window": "1 day"}, None),
    "A2-024": ("end_to_end_deadline", {"life": "2 days", "completion_margin": "5 min"}, None),
    "A2-025": ("queue_budget", {"item_limit": 10, "byte_limit": 1000, "age_limit": "1 h"}, None),
    "A2-026": ("admission_owner", {}, "engine"),
    "A2-027": ("execution_owner", {}, "engine"),
    "A2-028": ("retry_owner", {"retry_owner": "caller"}, "preset job"),
    "A2-029": (
        "repetition_policy",
        {"replay_class": "destination_protected", "protection": PROTECTION},
        "policy",
    ),
    "A2-030": (
        "capacity_model",
        {"evidence": "required", "freshness": "1 min", "dependencies": ["mail"]},
        "preset job",
    ),
    "A2-031": ("scheduling_policy", {}, "engine"),
    "A2-032": ("coalescing_policy", {"coalesce": "absorb"}, "preset job"),
    "A2-033": ("cancellation_policy", {"cancel_boundary": "effect_start"}, "preset job"),
    "A2-034": ("expiry_policy", {}, "engine"),
    "A2-035": ("lease_policy", {"ttl": "10 min", "max_age": "2 h"}, "engine"),
    "A2-036": ("overload_response", {"wait_hint": "1 min"}, None),
    "A2-037": ("dead_letter_policy", {"attempts": 5, "retention": "90 days"}, "preset job"),
    "A2-038": ("terminal_evidence", {"completion_test": "effects"}, "preset job"),
    "A2-039": ("telemetry_policy", {}, "preset job"),
    "A2-040": (
        "payload_validation",
        {"payload_limit": 100, "schema": {"type": "object", "properties": {"a": {"const": None}}}},
        "preset job",
    ),
    "A2-041": ("configuration_version", {}, "engine"),
}

# id → number, question, what answers all of it, and whether a class that says nothing is told
QUESTIONS: dict[str, tuple[int, str, dict[str, Any], bool]] = {
    "A2-042": (1, "exact intent", {}, False),
    "A2-043": (2, "stop being useful", {"value_window": "1 day"}, True),
    "A2-044": (3, "deadline cover waiting", {"life": "1 day"}, True),
    "A2-045": (4, "item and byte limits", {"item_limit": 10, "byte_limit": 1000}, True),
    "A2-046": (5, "age sets off", {"age_limit": "1 h", "age_action": "reject"}, True),
    "A2-047": (6, "drain rate", {}, False),
    "A2-048": (7, "measurement not believed", {}, False),
    "A2-049": (8, "scarce dependency", {"dependencies": ["mail"], "limit_per_key": 3}, True),
    "A2-050": (9, "repeated after a timeout", {}, False),
    "A2-051": (10, "earlier effect looked up", {}, False),
    "A2-052": (11, "one layer repeats", {}, False),
    "A2-053": (12, "same budget", {}, False),
    "A2-054": (13, "go before others", {}, False),
    "A2-055": (14, "prevents starvation", {}, False),
    "A2-056": (15, "merged, by which key", {}, False),
    "A2-057": (16, "before and after its lease", {}, False),
    "A2-058": (17, "fence stops an expired worker", {}, False),
    "A2-059": (18, "too much to keep", {"item_limit": 10}, True),
    "A2-060": (19, "refused caller told", {"wait_hint": "1 min"}, True),
    "A2-061": (20, "kinds of ends", {}, False),
    "A2-062": (21, "valid and authorised", {"submitters": ["t_producer"]}, True),
}


def event(desk: Desk, revision: int, name: str = "x") -> Any:
    (found,) = desk.db.rows(
        "select data, version from eve.ledger where queue_id = %s and item = 0"
        " and kind = 'class_defined' and data ->> 'class' = %s and data ->> 'revision' = %s",
        [desk.id, name, str(revision)],
    )
    return found.data


def revision(desk: Desk, number: int, name: str = "x") -> Any:
    return desk.db.row(
        "select r.answers, r.document, r.preset, encode(r.digest, 'hex') as digest"
        " from eve.class_revision as r join eve.work_class as k using (queue_id, class_id)"
        " where r.queue_id = %s and k.name = %s and r.revision = %s",
        [desk.id, name, number],
    )


def test_the_vocabulary_has_the_fields_and_the_questions(shared: Database) -> None:
    fields = shared.rows("select field, settings from eve.policy_field")
    assert {row.field for row in fields} == {field for field, _, _ in FIELDS.values()}
    assert (len(FIELDS), len(QUESTIONS)) == (22, 21)
    settings = [name for row in fields for name in row.settings]
    known = {row.name for row in shared.rows("select (eve._settings()).name")} | {"schema"}
    assert len(settings) == len(set(settings))
    assert set(settings) <= known
    for field, declaring, _ in FIELDS.values():
        (row,) = [row for row in fields if row.field == field]
        assert set(declaring) <= set(row.settings)
    questions = shared.rows("select number, question, fields from eve.question")
    assert {row.number for row in questions} == {n for n, *_ in QUESTIONS.values()}
    assert {name for row in questions for name in row.fields} <= {row.field for row in fields}


@pytest.mark.parametrize("id_", FIELDS)
def test_a2_020_to_a2_041_a_field_is_declared_versioned_and_reported(desk: Desk, id_: str) -> None:
    field, declaring, answerer = FIELDS[id_]
    # Nobody says anything: who answered is recorded, or that nobody did.
    first = desk.call("t_operator", "eve_define_class", **{"class": "x"}, replay_class="safe")
    said = event(desk, 1)["answers"][field]
    assert said.get("answered_by") == answerer
    asked = {
        row.question
        for row in desk.db.rows(
            "select question from eve.question where %s = any (fields)", [field]
        )
    }
    unanswered = set(first.detail["unanswered"].values())
    assert answerer or not asked or asked <= unanswered
    # In settings, where it has any.
    number = 2
    if declaring:
        words = {k: v for k, v in declaring.items() if k == "replay_class"}
        desk.call(
            "t_operator", "eve_define_class", **{"class": "x"},
            **(words or {"replay_class": "safe"}),
            policy={k: v for k, v in declaring.items() if k != "replay_class"},
        )  # fmt: skip
        told = event(desk, number)["answers"][field]
        assert told["answered_by"] == "policy"
        assert {k: told["settings"][k] for k in declaring if k != "schema"} == {
            k: v for k, v in declaring.items() if k != "schema"
        }
        if "schema" in declaring:
            assert re.fullmatch("[0-9a-f]{64}", told["settings"]["schema"])
        number += 1
    # And in words.
    desk.call(
        "t_operator", "eve_define_class", **{"class": "x"}, replay_class="safe",
        policy={"declared": {field: f"as decided for {id_}"}},
    )  # fmt: skip
    told = event(desk, number)
    assert told["answers"][field]["answered_by"] == "policy"
    assert told["answers"][field]["declared"] == f"as decided for {id_}"
    # Each revision stays: what was declared, by whom, under a digest of its own.
    kept = [revision(desk, n) for n in range(1, number + 1)]
    assert [k.answers for k in kept] == [event(desk, n)["answers"] for n in range(1, number + 1)]
    assert [k.digest for k in kept] == [event(desk, n)["digest"] for n in range(1, number + 1)]
    assert len({k.digest for k in kept}) == number
    assert kept[0].answers[field].get("answered_by") == answerer
    with desk.refused("55000"):
        desk.db.rows("delete from eve.ledger where queue_id = %s and item = 0", [desk.id])
    assert desk.call("t_operator", "eve_rebuild").clean
    assert [revision(desk, n) for n in range(1, number + 1)] == kept


@pytest.mark.parametrize("id_", QUESTIONS)
def test_a2_042_to_a2_062_a_question_is_answered_or_reported(desk: Desk, id_: str) -> None:
    number, words, answering, told = QUESTIONS[id_]
    first = desk.call("t_operator", "eve_define_class", **{"class": "x"}, replay_class="safe")
    unanswered = first.detail["unanswered"]
    assert (str(number) in unanswered) == told
    question = desk.db.value("select question from eve.question where number = %s", [number])
    assert words in question
    assert unanswered.get(str(number), question) == question
    assert event(desk, 1)["unanswered"] == unanswered
    # Answered by settings or in words, it is reported no more; by name of who answered.
    fields = desk.db.value("select fields from eve.question where number = %s", [number])
    for policy in (answering, {"declared": dict.fromkeys(fields, "as written down")}):
        if policy:
            answer = desk.call(
                "t_operator", "eve_define_class", **{"class": "x"}, replay_class="safe",
                policy=policy,
            )  # fmt: skip
            assert str(number) not in answer.detail["unanswered"]
    last = desk.db.value(
        "select max(revision) from eve.work_class where queue_id = %s and name = 'x'", [desk.id]
    )
    answers = event(desk, last)["answers"]
    assert {answers[f]["answered_by"] for f in fields} == {"policy"}
    silent = event(desk, 1)["answers"]
    by = {silent[f].get("answered_by") for f in fields}
    assert (None in by) == told
    assert by <= {None, "engine", "policy", "preset job"}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_recorded_as_the_answerer_of_what_it_sets(desk: Desk, preset: str) -> None:
    desk.call(
        "t_operator", "eve_define_class", **{"class": "x"}, preset=preset, replay_class="safe"
    )
    found = event(desk, 1)
    given = desk.db.value("select policy from eve.preset where preset = %s", [preset])
    by_preset = {
        name: value["settings"]
        for name, value in found["answers"].items()
        if value.get("answered_by") == f"preset {preset}" and "settings" in value
    }
    assert by_preset
    for settings in by_preset.values():
        for name, value in settings.items():
            assert given[name] == value
    # What a preset sets is what holds.
    for name in given:
        if name != "declared":
            assert desk.db.value(
                f"select p.{name} = q.{name} from"
                " jsonb_populate_record(null::eve.policy, %s) as p,"
                " jsonb_populate_record(null::eve.policy, %s) as q",
                [Jsonb(found["policy"]), Jsonb(given)],
            ), name


def test_only_a_class_without_a_replay_class_is_refused(desk: Desk) -> None:
    before = desk.census()
    with desk.refused("22023") as refused:
        desk.call("t_operator", "eve_define_class", **{"class": "x"})
    assert refused.error.diag.message_primary == "policy refused: replay_class is not said"
    with desk.refused("22023"):
        desk.call("t_operator", "eve_define_class", **{"class": "x"}, policy={"replay_class": None})
    assert desk.census() == before
    for name in ("safe", "reconcilable", "non_repeatable", "unknown"):
        assert desk.call(
            "t_operator", "eve_define_class", **{"class": name}, replay_class=name
        ).done
    answer = desk.call(
        "t_operator", "eve_define_class", **{"class": "all"}, policy={
            "replay_class": "safe",
            "declared": {field: "as written down" for field, _, _ in FIELDS.values()},
        },
    )  # fmt: skip
    assert answer.detail["unanswered"] == {}


def test_a_null_takes_an_answer_away(desk: Desk) -> None:
    """It is not an answer of its own: the question is reported again."""
    desk.call(
        "t_operator", "eve_define_class", **{"class": "x"}, replay_class="safe",
        policy={"value_window": None, "wait_hint": None, "item_limit": None},
    )  # fmt: skip
    found = event(desk, 1)
    assert {"2", "4", "19"} <= set(found["unanswered"])
    assert "answered_by" not in found["answers"]["value_window"]
    assert found["document"]["value_window"] is None


def test_an_unknown_field_is_refused_with_the_known_ones(desk: Desk) -> None:
    with desk.refused("22023") as refused:
        desk.define("x", replay_class="safe", atempts=3)
    assert '"attempts"' in (refused.error.diag.message_detail or "")
    with desk.refused("22023") as refused:
        desk.define("x", replay_class="safe", queue_budget=3)
    hint = refused.error.diag.message_hint or ""
    assert "item_limit" in hint
    assert '"declared"' in hint
    with desk.refused("22023") as refused:
        desk.define("x", replay_class="safe", scheduling_policy="fair")
    assert "queue itself" in (refused.error.diag.message_hint or "")


def test_a_forged_answerer_fails_the_audit(desk: Desk) -> None:
    desk.spoiled = True
    desk.db.rows(
        "update eve.class_revision set answers = answers - 'retry_owner' where queue_id = %s",
        [desk.id],
    )
    answer = desk.audit()
    assert (answer.clean, answer.replay) == (False, "different")
    assert {"fault": "queue", "item": 0, "what": "class"} in answer.faults
