"""Bad input to every argument of every verb: an SQLSTATE, a hint, nothing half written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.database import Database, adapted
from support.desk import changed
from support.world import World

LONG = "x" * 2**20
FAR = "294276-12-31 23:59:59Z"
AGES = "170000000 years"
NOBODY = 10**15
FARAWAY = "faraway"  # a class and a pool of another queue
FOREIGN = object()  # stands for the number of something of another queue

Cases = list[tuple[object, str]]

# What each kind of argument must refuse. The SQLSTATE, or the refusal's name, or what is answered:
# "=…" means that the call succeeds with this refusal, decision or absence of effect.
QUEUE: Cases = [(None, "22004"), ("", "P0002"), (LONG, "P0002"), ("nowhere", "P0002"),
                ("a\nb", "P0002"), (FOREIGN, "P0002")]  # fmt: skip
KEY: Cases = [("", "22023"), (LONG, "22023"), ("x" * 513, "22023")]
ITEM: Cases = [(None, "P0002"), (0, "P0002"), (-1, "P0002"), (NOBODY, "P0002"), (FOREIGN, "P0002")]
TOKEN: Cases = [(None, "stale_fence"), (0, "stale_fence"), (-1, "stale_fence"),
                (2**63 - 1, "stale_fence")]  # fmt: skip
NAME: Cases = [("", "22023"), (LONG, "22023"), ("a\nb", "22023")]
NEEDED: Cases = [(None, "22004"), *NAME]
CLASS: Cases = [(None, "22004"), ("", "22023"), (LONG, "22023"), ("nothing", "P0002"),
                (FARAWAY, "P0002")]  # fmt: skip
WORD: Cases = [(None, "22023"), ("", "22023"), (LONG, "22023"), ("perhaps", "22023")]
MAYBE_WORD: Cases = WORD[1:]
INSTANT: Cases = [("infinity", "22023"), ("-infinity", "22023"), (FAR, "22023"),
                  ("0001-01-01 00:00Z BC", "22023")]  # fmt: skip
DECISION: Cases = [(0, "P0002"), (-1, "P0002"), (NOBODY, "P0002"), (FOREIGN, "P0002")]
OBJECT: Cases = [(Jsonb([]), "22023"), (Jsonb(None), "22023"), (Jsonb("a"), "22023"),
                 (Jsonb(1), "22023")]  # fmt: skip
POOL: Cases = [("", "P0002"), (LONG, "P0002"), ("nowhere", "P0002"), (FARAWAY, "P0002")]
CLASSES: Cases = [([], "22023"), ([None], "22023"), ([["default"]], "22023"),
                  (["nothing"], "P0002"), ([FARAWAY], "P0002"),
                  (["default", LONG], "P0002")]  # fmt: skip
NAMES: Cases = [([None], "22004"), ([""], "22023"), ([LONG], "22023"), ([["a"], ["b"]], "22023"),
                (["a"] * 100_000, "22023")]  # fmt: skip
YES: Cases = [(None, "22004")]
ANY: Cases = []  # any JSON, any boolean: nothing is bad

TTL: Cases = [("-1 s", "22023"), ("0 s", "22023"), (AGES, "lease_age_exceeded")]
RETENTION: Cases = [(None, "22023"), ("-1 s", "22023"), ("6 days", "22023"), (AGES, "22023")]
BATCH: Cases = [(None, "22004"), ([], "22023"), ([None], "22004"), ([1, 2], "22023"),
                ([[1], [2]], "22023"), (list(range(1001)), "22023"),
                (list(range(100_000)), "22023")]  # fmt: skip
TOKENS: Cases = [(None, "22004"), ([], "22023"), ([1, 2], "22023"), ([[1]], "22023"),
                 (list(range(1001)), "22023"), ([None], "=stale_fence")]  # fmt: skip
RESULTS: Cases = [([], "22023"), ([Jsonb(1), Jsonb(2)], "22023"), ([[Jsonb(1)]], "22023"),
                  ([Jsonb(LONG + LONG)], "22023")]  # fmt: skip

EVIDENCE: Cases = [
    (Jsonb(1), "22023"), (Jsonb("a"), "22023"), (Jsonb({}), "22023"), (Jsonb([1]), "22023"),
    (Jsonb({"kind": ""}), "22023"), (Jsonb({"kind": 1}), "22023"), (Jsonb({"kind": LONG}), "22023"),
    (Jsonb({"kind": "a", "more": 1}), "22023"), (Jsonb({"kind": "a", "uri": 1}), "22023"),
    (Jsonb({"kind": "a", "uri": "x" * 4097}), "22023"), (Jsonb({"kind": "a", "uri": ""}), "22023"),
    (Jsonb({"kind": "a", "digest": "x" * 513}), "22023"),
    (Jsonb({"kind": "a", "exit": 1.5}), "22023"), (Jsonb({"kind": "a", "exit": "1"}), "22023"),
    (Jsonb({"kind": "a", "exit": 10**30}), "22023"), (Jsonb({"kind": "a", "at": "now"}), "22023"),
    (Jsonb({"kind": "a", "at": "2031-02-30T00:00Z"}), "22023"),
    (Jsonb({"kind": "a", "at": "2031-01-01 00:00"}), "22023"),
    (Jsonb({"kind": "a", "note": LONG}), "22023"), (Jsonb([{"kind": "a"}] * 101), "22023"),
]  # fmt: skip

SPEND: Cases = [(-1, "22023"), ("NaN", "22023"), ("Infinity", "22023"), ("-Infinity", "22023"),
                ("1e18", "22023"), ("1e-13", "22023")]  # fmt: skip

BAD: dict[str, dict[str, Cases]] = {
    "eve_contract": {},
    "eve_create_queue": {
        "queue": [*NEEDED, ("x" * 201, "22023"), (FOREIGN, "42710")],
        "replay_class": MAYBE_WORD,
        "durability": [*WORD, ("required", "55000")],
        "request_retention": RETENTION,
        "idempotency_key": KEY,
    },
    "eve_define_class": {
        "queue": QUEUE,
        "class": NEEDED,
        "preset": [(None, "22004"), *MAYBE_WORD],
        "replay_class": [(None, "22023"), *MAYBE_WORD],
        "policy": [(None, "22004"), *OBJECT, (Jsonb({"nothing": 1}), "22023"),
                   (Jsonb({LONG: 1}), "22023")],
        "idempotency_key": KEY,
    },
    "eve_define_pool": {
        "queue": QUEUE, "pool": [*NEEDED, ("local", "42710")],
        "classes": [(v, "22023") for v in ([], [""], [None], [LONG], [["a"]])],
        "idempotency_key": KEY,
    },
    "eve_grant_access": {
        "queue": QUEUE,
        "role": [(None, "42704"), ("", "42704"), (LONG, "42704"), ("nobody_at_all", "42704")],
        "capability": WORD,
        "principal": NAME,
        "idempotency_key": KEY,
    },
    "eve_revoke_access": {
        "queue": QUEUE,
        "role": [(None, "22004"), ("", "=none"), (LONG, "=none"), ("gone", "=none")],
        "capability": WORD,
        "idempotency_key": KEY,
    },
    "eve_submit": {
        "queue": QUEUE,
        "payload": [(None, "22004"), (Jsonb(LONG + LONG), "=REJECT")],
        "class": CLASS,
        "work_id": [*NAME, ("x" * 513, "22023"), ("~1", "22023"), ("parent", "=REJECT")],
        "after": NAMES,
        "priority_class": [(None, "22023"), (-1, "22023"), (4, "22023"), (2**31 - 1, "22023")],
        "not_before": INSTANT,
        "deadline": [*INSTANT, ("2001-01-01Z", "=EXPIRE")],
        "minimum_completion_margin": [("-1 s", "22023"), (AGES, "22023")],
        "value_until": [*INSTANT, ("2001-01-01Z", "=EXPIRE")],
        "requested_at": INSTANT,
        "operation_identity": NAME,
        "effect_identity": NAME,
        "cancellation_identity": NAME,
        "dependency_revisions": ANY,
        "replay_class": MAYBE_WORD,
        "completion_test": MAYBE_WORD,
        "expected_effects": [([], "22023"), *NAMES],
        "coalescing_key": NAME,
        "limit_key": NAME,
        "group_label": NAME,
        "after_ended": NAMES,
        "decision": DECISION,
        "under": [("(0,1)", "=REJECT"), (f"({NOBODY},1)", "=REJECT"), ("(,1)", "=REJECT")],
        "trace": NAME,
        "must_admit": YES,
        "idempotency_key": KEY,
    },
    "eve_acquire": {
        "queue": QUEUE,
        "worker": NEEDED,
        "item": ITEM[1:],
        "classes": CLASSES,
        "pool": POOL,
        "ttl": [(t, "=lease_ttl_out_of_range") for t in ("-1 s", "0 s", AGES)],
        "max_items": [(None, "22023"), (0, "22023"), (-1, "22023"), (1001, "22023")],
        "idempotency_key": KEY,
    },
    "eve_turn": {
        "queue": QUEUE,
        "worker": NEEDED,
        "items": BATCH,
        "tokens": TOKENS,
        "results": RESULTS,
        "classes": CLASSES,
        "pool": POOL,
        "ttl": [(t, "=lease_ttl_out_of_range") for t in ("-1 s", "0 s", AGES)],
        "max_items": [(None, "22023"), (0, "22023"), (1001, "22023")],
        "all_or_nothing": YES,
        "idempotency_key": KEY,
    },
    "eve_renew": {
        "queue": QUEUE, "item": ITEM, "token": TOKEN, "ttl": TTL, "progress": ANY,
        "checkpoint": ANY, "spend": SPEND, "idempotency_key": KEY,
    },
    "eve_return": {
        "queue": QUEUE,
        "item": ITEM,
        "token": TOKEN,
        "reason": NEEDED,
        "until": INSTANT,
        "decision": DECISION,
        "after": NAMES,
        "reconcile": YES,
        "checkpoint": ANY,
        "spend": SPEND, "idempotency_key": KEY,
    },
    "eve_complete": {
        "queue": QUEUE, "item": ITEM, "token": TOKEN, "result": [(Jsonb(LONG + LONG), "22023")],
        "evidence": EVIDENCE, "spend": SPEND, "idempotency_key": KEY,
    },
    "eve_complete_batch": {
        "queue": QUEUE, "items": BATCH, "tokens": TOKENS, "results": RESULTS,
        "all_or_nothing": YES, "idempotency_key": KEY,
    },
    "eve_fail": {
        "queue": QUEUE,
        "item": ITEM,
        "token": TOKEN,
        "error": [(None, "22023"), ("", "22023"), (LONG, "22023")],
        "disposition": WORD,
        "detail": ANY,
        "spend": SPEND, "idempotency_key": KEY,
    },
    "eve_start_effect": {
        "queue": QUEUE, "item": ITEM, "token": TOKEN, "effect_identity": NAME, "evidence": EVIDENCE,
        "idempotency_key": KEY,
    },
    "eve_fence": {"queue": QUEUE, "item": ITEM, "token": TOKEN},
    "eve_observe_effect": {
        "queue": QUEUE, "item": ITEM, "effect_identity": NAME, "evidence": EVIDENCE,
        "observed_at": INSTANT, "token": TOKEN, "idempotency_key": KEY,
    },
    "eve_reconcile": {
        "queue": QUEUE, "item": ITEM, "finding": WORD, "evidence": EVIDENCE, "scope": NAME,
        "idempotency_key": KEY,
    },
    "eve_compensate": {
        "queue": QUEUE, "item": ITEM, "effect_identity": NEEDED,
        "evidence": [*YES, (Jsonb([]), "22004"), *EVIDENCE],
        "idempotency_key": KEY,
    },
    "eve_verify": {"queue": QUEUE, "item": ITEM, "evidence": EVIDENCE, "idempotency_key": KEY},
    "eve_settle_import": {
        "queue": QUEUE,
        "decision": [(value, "terminal_state_not_owned") for value, _ in ITEM],
        "work_id": [*NEEDED, ("~1", "22023"), ("parent", "42710")],
        "payload": [(None, "22004"), (Jsonb(LONG + LONG), "22023")],
        "class": CLASS,
        "phase": WORD,
        "evidence": ANY,
        "idempotency_key": KEY,
    },
    "eve_cancel": {
        "queue": QUEUE,
        "item": [(None, "22023"), *((value, "=none") for value, _ in ITEM[1:])],
        "work_id": [("also", "22023")],
        "cancellation_identity": [("also", "22023"), *NAME],
        "reason": NEEDED,
        "idempotency_key": KEY,
    },
    "eve_propose": {
        "queue": QUEUE,
        "kind": [*WORD, ("waiver", "P0002"), ("spend", "22023")],
        "item": ITEM[1:],
        "work_id": NAME,
        "pool": NAME,
        "slots": [(-1, "22023"), (1025, "22023")],
        "subject": [(None, "22023"), *OBJECT],
        "token": [(0, "22023"), (-1, "22023"), (2**63 - 1, "22023")],
        "digest": [*NAME, ("f" * 64, "22023"), ("F" * 64, "22023"), ("f" * 63, "22023")],
        "expires_at": INSTANT,
        "idempotency_key": KEY,
    },
    "eve_accept": {
        "queue": QUEUE, "decision": [(None, "P0002"), *DECISION], "answer": ANY,
        "idempotency_key": KEY,
    },
    "eve_decline": {
        "queue": QUEUE, "decision": [(None, "P0002"), *DECISION], "answer": ANY,
        "idempotency_key": KEY,
    },
    "eve_approve_slots": {
        "queue": QUEUE,
        "pool": [*NEEDED, ("local", "22023")],
        "slots": [(None, "22023"), (-1, "22023"), (1025, "22023")],
        "default_pool": YES,
        "idempotency_key": KEY,
    },
    "eve_reject": {"queue": QUEUE, "item": ITEM, "reason": NEEDED, "idempotency_key": KEY},
    "eve_unpark": {
        "queue": QUEUE,
        "item": ITEM,
        "extra_attempts": [(None, "22023"), (0, "22023"), (-1, "22023"), (2**31 - 1, "22023")],
        "reason": NEEDED,
        "idempotency_key": KEY,
    },
    "eve_resume": {"queue": QUEUE, "reason": NEEDED, "idempotency_key": KEY},
    "eve_halt": {
        "queue": QUEUE,
        "reason": NEEDED,
        "as_of": [("", "22023"), (LONG, "22023"), ("-1", "22023"), ("now", "22023"),
                  ("9" * 20, "22023"), ("18446744073709551616", "22023")],
        "idempotency_key": KEY,
    },
    "eve_reprioritise": {
        "queue": QUEUE, "item": ITEM,
        "priority_class": [(None, "22023"), (-1, "22023"), (4, "22023")], "idempotency_key": KEY,
    },
    "eve_pause": {
        "queue": QUEUE, "class": [(None, "22023"), *CLASS[1:]], "pool": [("local", "22023")],
        "reason": NEEDED, "idempotency_key": KEY,
    },
    "eve_unpause": {
        "queue": QUEUE, "class": [(None, "22023"), *CLASS[1:]], "pool": [("local", "22023")],
        "reason": NEEDED, "idempotency_key": KEY,
    },
    "eve_new_epoch": {"queue": QUEUE, "reason": NEEDED, "idempotency_key": KEY},
    "eve_rebuild": {"queue": QUEUE},
    "eve_fence_table": {
        "queue": QUEUE,
        "target": [(None, "22004"), (0, "42703"), (2**31, "42703")],
        "item_column": [(value, "42703") for value in (None, "", LONG, "body", "nothing")],
        "token_column": [(value, "42703") for value in (None, "", LONG, "body", "item")],
    },
    "eve_sweep": {
        "queue": QUEUE,
        "at_most": [(None, "22023"), (0, "22023"), (-1, "22023"), (2**31 - 1, "22023")],
        "idempotency_key": KEY,
    },
    "eve_measure": {"queue": QUEUE, "class": CLASS[1:], "idempotency_key": KEY},
    "eve_set_health": {
        "queue": QUEUE,
        "dependency": NEEDED,
        "health": WORD,
        "capacity": [(-1, "22023"), (2**31 - 1, "22023")],
        "observed_at": [*INSTANT, ("2999-01-01Z", "22023")],
        "valid_for": [(None, "22023"), ("0 s", "22023"), ("-1 s", "22023"), (AGES, "22023")],
        "detail": [(Jsonb(LONG), "22023")],
        "idempotency_key": KEY,
    },
    "eve_recheck": {
        "queue": QUEUE, "item": ITEM[1:], "work_id": [("a", "22023")], "idempotency_key": KEY,
    },
    "eve_backtest": {
        "queue": QUEUE,
        "class": CLASS,
        "policy": [(None, "22004"), *OBJECT, (Jsonb({}), "22023"),
                   (Jsonb({"nothing": 1}), "22023")],
        "since": [(None, "22004"), *INSTANT],
        "preset": [(None, "22004"), *MAYBE_WORD],
        "at_most": [(None, "22023"), (0, "22023"), (-1, "22023"), (100_001, "22023")],
    },
    "eve_recover": {"queue": QUEUE, "idempotency_key": KEY},
    "eve_item": {"queue": QUEUE, "item": [(None, "22023"), *ITEM[1:]], "work_id": [("a", "22023")]},
    "eve_explain": {
        "queue": QUEUE, "item": [(None, "22023"), *ITEM[1:]], "work_id": [("a", "22023")],
    },
    "eve_checks": {
        "queue": QUEUE, "item": [(None, "22023"), *ITEM[1:]], "work_id": [("a", "22023")],
    },
    "eve_statement": {
        "queue": QUEUE, "item": [(None, "22023"), *ITEM[1:]], "work_id": [("a", "22023")],
        "submission": [(1, "22023")],
    },
    "eve_history": {
        "queue": QUEUE, "item": [(None, "22023"), *ITEM[2:]], "work_id": [("a", "22023")],
    },
    "eve_replay": {"queue": QUEUE, "item": [ITEM[0], *ITEM[2:]], "as_of": ANY},
    "eve_audit": {"queue": QUEUE[1:]},
    "eve_stats": {"queue": QUEUE},
}  # fmt: skip


def test_every_argument_of_every_verb_has_its_bad_values(shared: Database) -> None:
    """A new verb or argument fails here until somebody says what it must refuse."""
    found = shared.rows(
        "select proname, coalesce(proargnames[:pronargs], '{}') as names from pg_proc"
        " where pronamespace = 'public'::regnamespace and proname ^@ 'eve_'"
        " and prorettype <> 'trigger'::regtype"
    )
    assert {row.proname: set(row.names) for row in found} == {
        verb: set(arguments) for verb, arguments in BAD.items()
    }


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:40]}… ({len(text)} characters)"


def tried(world: World, verb: str, arguments: dict[str, Any], role: str) -> tuple[str, str | None]:
    """The SQLSTATE and hint that a call is refused with, or "=" and what it answers."""
    try:
        answer = world.answer(role, verb, **arguments)
    except psycopg.Error as error:
        return error.sqlstate or "", error.diag.message_hint
    for row in answer:
        if said := getattr(row, "refusal", None):
            return f"={said}", None
    if verb == "eve_submit":
        return f"={answer[0].decision}", None
    return "=none" if getattr(answer[0], "done", None) is False else "=done", None


@pytest.mark.parametrize("verb", BAD)
def test_bad_input_is_refused_by_code_with_a_hint(world: World, verb: str) -> None:
    states = dict(world.db.rows("select code, sqlstate from eve.refusal"))
    role, valid = world.valid(verb)
    stands_for = {
        "queue": world.foreign.queue,
        "item": world.items["foreign"],
        "decision": world.decisions["foreign"],
    }
    before = world.desk.census()
    faults = []
    said: str | None
    for argument, cases in BAD[verb].items():
        for value, expected in cases:
            given = stands_for[argument] if value is FOREIGN else value
            if argument == "queue" and value is FOREIGN:
                # The operator of both queues is stopped by nothing there.
                caller = "t_stranger" if role == "t_operator" else role
            else:
                caller = role
            code, hint = tried(world, verb, {**valid, argument: given}, caller)
            said = f"{verb}({argument} => {shown(value)})"
            if code != states.get(expected, expected):
                faults.append(f"{said}: {code}, not {expected}")
            elif not code.startswith("=") and not hint:
                faults.append(f"{said}: {code} without a hint")
    assert faults == []
    assert changed(before, world.desk.census()) == []


@pytest.fixture(autouse=True)
def stranger(shared: Database) -> None:
    """An operator who was given access to no queue by name."""
    if not shared.value("select 1 from pg_roles where rolname = 't_stranger'"):
        shared.rows("create role t_stranger login in role eve_operator, eve_worker, eve_human")


POLICIES: dict[str, list[object]] = {
    "replay_class": ["", "perhaps", 1],
    "attempts": [0, -1, 1001, 1e20, "many", 1.5, None, [3]],
    "ttl_floor": ["0 s", "-1 s", "0.9 s", "soon", None, AGES],
    "ttl": ["59 s", "86401 s", "-1 s", None],
    "ttl_ceiling": ["59 s", "31 days", AGES, None],
    "max_age": ["59 s", "31 days", AGES, None],
    "completion_test": ["", "hope", None],
    "engine_verifies": ["perhaps", 2, None],
    "verifier_not_holder": [None],
    "effect_starts": [None],
    "own_lane": [None],
    "cancel_boundary": ["", "later", None],
    "backoff_base": ["-1 s", "31 days", AGES, None],
    "backoff_factor": [0.5, 101, "NaN", "Infinity", None],
    "backoff_cap": ["-1 s", "31 days", None],
    "backoff_jitter": [-0.1, 1.1, "NaN", None],
    "payload_limit": [-1, 2**26 + 1, None],
    "result_limit": [-1, 2**26 + 1, None],
    "retention": ["-1 s", AGES, None],
    "child_depth": [-1, 101, None],
    "child_fan_out": [-1, 1_000_001, None],
    "completion_margin": ["-1 s", AGES, None],
    "retry_owner": [LONG, "", "a\nb", None],
    "pools": ["local", [], [None], [""], [["a"], ["b"]], {"a": 1}],
    "protection": [],
    "evidence": ["", "perhaps", None],
    "evidence_limit": [-1, 10**9 + 1, "3", 1.5],
    "freshness": ["0 s", "8 days", AGES, None, 90],
    "measure_window": ["0 s", "8 days", AGES, None],
    "dependencies": ["mail", [], [None], [""], [["a"], ["b"]], ["a"] * 17, [1], {"a": 1}],
    "budget_mode": ["", "loose", None],
    "item_limit": [-1, 2**63, 1e30, "7", 0.5, [7], True],
    "byte_limit": [-1, 2**63, 1e30, "7", 0.5, [7], True],
    "shared_item_limit": [-1, 2**63, 1e30, "7", 0.5, [7], True],
    "shared_byte_limit": [-1, 2**63, 1e30, "7", 0.5, [7], True],
    "age_limit": ["0.9 s", "-1 s", AGES, 60],
    "age_action": ["", "forget", None],
    "value_window": ["-1 s", AGES, "a while", 60],
    "life": ["-1 s", AGES, "a while", 60],
    "wait_hint": ["-1 s", "31 days", AGES, 60],
    "submitters": ["t_producer", [], [None], [""], [LONG], [["a"]], ["a\nb"]],
    "coalesce": ["", "perhaps", None, True],
    "effect_unique": ["yes", 1, None],
    "limit_per_key": [0, -1, 1025, "2"],
    "evidence_kinds": ["receipt", [], [None], [""], ["a"] * 65, [LONG]],
    "spend_limit": [-1, "NaN", "Infinity", "10"],
    "spend_tree_limit": [-1, "NaN", "Infinity", "10"],
    "schema_digest": ["", "0" * 64, None],
}
DOCUMENTS: list[dict[str, Any]] = [
    {"schema": None}, {"schema": "object"}, {"schema": []}, {"schema": {"title": LONG}},
    {"declared": None}, {"declared": []}, {"declared": {"nothing": "a"}},
    {"declared": {"value_window": None}}, {"declared": {"value_window": " "}},
    {"declared": {"value_window": {"days": 1}}}, {"declared": {"value_window": "x" * 65537}},
    {"pools": ["a"] * 1001}, {"evidence": "limit"}, {"lease_policy": "as the queue has it"},
]  # fmt: skip
PROTECTION = {
    "scope": "payee", "retention": "7 days", "canonical_inputs": "all", "conflict_behaviour": "409",
    "authority": "bank", "after_retention": "reconcile",
}  # fmt: skip
PROTECTIONS: list[object] = [
    None, {}, list(PROTECTION), "scope", {**PROTECTION, "retention": None},
    {**PROTECTION, "retention": "a while"}, {**PROTECTION, "retention": "-1 day"},
    {**PROTECTION, "retention": AGES}, {**PROTECTION, "retention": {"days": 7}},
    {k: v for k, v in PROTECTION.items() if k != "authority"},
]  # fmt: skip


INFINITE = [  # verb, argument, and what an infinite interval is answered with where there is one
    ("eve_acquire", "ttl", "=lease_ttl_out_of_range"),
    ("eve_turn", "ttl", "=lease_ttl_out_of_range"),
    ("eve_renew", "ttl", "22023"),
    ("eve_submit", "minimum_completion_margin", "22023"),
    ("eve_create_queue", "request_retention", "22023"),
]


def test_infinite_intervals_are_refused(world: World) -> None:
    """PostgreSQL knows them from 17 on; older ones refuse to read the word (22007)."""
    known = world.db.cluster.server.major >= 17
    before = world.desk.census()
    for verb, argument, expected in INFINITE:
        for value in ("infinity", "-infinity"):
            role, valid = world.valid(verb)
            code, hint = tried(world, verb, {**valid, argument: value}, role)
            assert code == (expected if known else "22007"), (verb, value)
            assert hint or not known or code.startswith("=")
    for field in ("ttl_floor", "ttl", "ttl_ceiling", "max_age", "backoff_base", "backoff_cap",
                  "retention", "completion_margin", "freshness", "measure_window", "age_limit",
                  "value_window", "life", "wait_hint"):  # fmt: skip
        role, valid = world.valid("eve_define_class")
        policy = {field: "infinity"}
        code, hint = tried(world, "eve_define_class", {**valid, "policy": policy}, role)
        assert (code, bool(hint)) == ("22023", True), field
    assert changed(before, world.desk.census()) == []


def test_every_policy_field_refuses_what_it_cannot_mean(world: World) -> None:
    fields = world.db.rows(
        "select attname from pg_attribute where attrelid = 'eve.policy'::regclass"
    )
    assert {row.attname for row in fields} == set(POLICIES)
    faults = []
    documents: Iterable[dict[str, Any]] = [
        *({"replay_class": "safe", name: bad} for name, many in POLICIES.items() for bad in many),
        *({"replay_class": "destination_protected", "protection": bad} for bad in PROTECTIONS),
        *({"replay_class": "safe", **bad} for bad in DOCUMENTS),
        {"replay_class": "safe", "completion_test": "review", "engine_verifies": True},
        {"replay_class": "safe", "max_age": "10 s", "ttl_floor": "20 s"},
    ]
    for policy in documents:
        code, hint = tried(
            world, "eve_define_class", {**world.valid("eve_define_class")[1],
            "replay_class": None, "policy": policy}, "t_operator",
        )  # fmt: skip
        if code != "22023" or not hint:
            faults.append(f"{shown(policy)}: {code} {hint}")
    assert faults == []
    good = {"replay_class": "destination_protected", "protection": PROTECTION}
    assert world.answer(
        "t_operator", "eve_define_class", queue=world.desk.queue, **{"class": "x"}, policy=good
    )[0].done


@pytest.mark.parametrize("text", ['"a\\u0000b"', '{"a\\u0000": 1}', '["\\ud800"]'])
def test_nul_and_half_characters_in_json_are_refused_by_postgresql(world: World, text: str) -> None:
    """Before eve sees them: PostgreSQL cannot store them in jsonb and says so, without a hint."""
    before = world.desk.census()
    for verb, arguments in BAD.items():
        role, valid = world.valid(verb)
        for argument in ("payload", "result", "evidence", "progress", "checkpoint", "detail",
                         "subject", "answer", "policy", "dependency_revisions"):  # fmt: skip
            if argument not in arguments:
                continue
            names = [name for name in valid if name != argument]
            query = ", ".join(f"{name} => %({name})s" for name in names)
            with pytest.raises(psycopg.Error) as refused, world.rolled_back(role) as connection:
                connection.execute(
                    f"select * from public.{verb}({query}, {argument} => %(bad)s::text::jsonb)",
                    {**{name: adapted(valid[name]) for name in names}, "bad": text},
                )
            assert refused.value.sqlstate in ("22P05", "22P02"), verb
    assert changed(before, world.desk.census()) == []


def test_nul_in_text_never_reaches_the_server(world: World) -> None:
    with pytest.raises(psycopg.DataError):
        world.answer("t_worker", "eve_acquire", queue=world.desk.queue, worker="a\0b")


def test_a_megabyte_is_not_echoed(world: World) -> None:
    """Messages quote what they were given, but not at length."""
    for verb, arguments in BAD.items():
        role, valid = world.valid(verb)
        for argument, cases in arguments.items():
            for value, expected in cases:
                if value is LONG and not expected.startswith("="):
                    with pytest.raises(psycopg.Error) as refused:
                        world.answer(role, verb, **{**valid, argument: LONG})
                    diag = refused.value.diag
                    said = f"{diag.message_primary}{diag.message_detail}{diag.message_hint}"
                    assert len(said) < 2000, (verb, argument)
