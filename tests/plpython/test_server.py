"""The functions in a server: the same answers as the modules, and who may ask."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from eve_plpython.estimate import start_delay
from eve_plpython.plan import plan_faults
from support.cluster import Cluster
from support.database import LOGINS, Database, Row
from support.json_schemas import FORMATS, NO_SCHEMA, VALIDATED
from support.servers import ROOT

PLAN = [
    {"id": "build", "after": ["setup"], "seconds": 60},
    {"id": "test", "after": ["build"], "seconds": 300},
    {"id": "lint", "after": ["setup"], "seconds": 20},
    {"id": "ship", "after": ["test", "lint"], "seconds": 5.5},
]


@pytest.fixture(scope="module")
def queue(learned: Database) -> str:
    name = learned.make_queue("plans")
    learned.call("t_producer", "eve_submit", queue=name, payload={}, work_id="setup")
    return name


@pytest.fixture
def check(learned: Database, queue: str) -> Callable[..., Row]:
    def call(plan: object, role: str = "t_producer") -> Row:
        return learned.call(role, "eve_plan_check", queue=queue, plan=Jsonb(plan))

    return call


# --- schemas and payloads: Debian's library is older than the one of the unit tests


@pytest.mark.parametrize("digest", [None, b"x"])
def test_payload_faults(learned: Database, digest: bytes | None) -> None:
    for n, (schema, payload, expected) in enumerate(VALIDATED):
        found = learned.value(
            "select eve._jsonschema_faults(%s, %s, %s)",
            [Jsonb(schema), digest and digest + bytes([n]), Jsonb(payload)],
        )
        assert [f"{f['path']} {f['keyword']}" for f in found] == expected, schema


def test_schema_faults(learned: Database) -> None:
    for document, begins in NO_SCHEMA:
        found = learned.value("select eve._schema_fault(%s)", [Jsonb(document)])
        assert found is None if begins is None else found.startswith(begins), document


def test_formats(learned: Database) -> None:
    for kind, value, valid in FORMATS:
        found = learned.value(
            "select eve._jsonschema_faults(%s, null, %s)", [Jsonb({"format": kind}), Jsonb(value)]
        )
        assert (found == []) == valid, (kind, value)


def test_a_kept_validator_answers_the_next_call(learned: Database) -> None:
    """The digest names the schema: under one digest, the first schema stays."""
    ask = "select eve._jsonschema_faults(%s, '\\xabcd', '1')"
    assert learned.value(ask, [Jsonb({"const": 1})]) == []
    assert learned.value(ask, [Jsonb({"const": 2})]) == []


def test_null_is_never_a_pass(learned: Database) -> None:
    for arguments in ("null, null, '1'", "'{}', null, null", "null, '\\x01', null"):
        assert len(learned.value(f"select eve._jsonschema_faults({arguments})")) == 1
    assert learned.value("select eve._schema_fault(null)") == "$: the schema is null"


def test_hostile_documents(learned: Database) -> None:
    """Whatever goes wrong in Python, the session lives and the answer is a fault."""
    for payload in ("1e5000", "[" * 3000 + "]" * 3000):
        found = learned.value("select eve._jsonschema_faults('{}', null, %s::jsonb)", [payload])
        assert len(found) == 1, payload
    found = learned.value(
        "select eve._jsonschema_faults(%s, null, %s)",
        [Jsonb({"items": {"anyOf": [{"type": "integer"}]}}), Jsonb(["x" * 1000] * 1000)],
    )
    assert len(found) == 20
    assert max(len(f["message"]) for f in found) <= 200


# --- plans


def test_plan_faults_are_those_of_the_module(learned: Database) -> None:
    circle = [{"id": "a", "after": ["b"]}, {"id": "b", "after": ["a"]}]
    plans: list[Any] = [[], PLAN, {}, circle]
    for plan in plans:
        for known in ([], ["setup"]):
            found = learned.value("select eve._plan_faults(%s, %s)", [Jsonb(plan), known])
            assert found == json.loads(plan_faults(json.dumps(plan), list(known)))
    assert learned.value("select eve._plan_faults(null, null)") == {
        "malformed": "the plan is not an array"
    }


def test_a_good_plan(check: Callable[..., Row]) -> None:
    answer = check(PLAN)
    assert (answer.ok, answer.items, answer.depth, answer.waves) == (True, 4, 3, 3)
    assert (answer.critical_path, answer.seconds) == (["build", "test", "ship"], 365.5)
    assert (answer.cycle, answer.unknown, answer.duplicates) == (None, {}, [])
    assert answer.detail == {
        "unit": "seconds", "widths": [2, 1, 1], "known": ["setup"], "taken": [],
    }  # fmt: skip


def test_an_empty_plan(check: Callable[..., Row]) -> None:
    answer = check([])
    assert (answer.ok, answer.items, answer.depth, answer.waves) == (True, 0, 0, 0)
    assert (answer.critical_path, answer.seconds, answer.cycle) == ([], 0, None)


def test_a_plan_with_faults(check: Callable[..., Row]) -> None:
    answer = check(
        [
            {"id": "b", "after": ["a", "gone"]},
            {"id": "a", "after": ["b"]},
            {"id": "a"},
            {"id": "setup", "after": ["gone"]},
        ]
    )
    assert (answer.ok, answer.items, answer.cycle) == (False, 4, ["a", "b", "a"])
    assert (answer.unknown, answer.duplicates) == ({"gone": ["b", "setup"]}, ["a"])
    assert answer.depth is answer.waves is answer.critical_path is answer.seconds is None
    assert answer.detail["taken"] == ["setup"]


def test_the_example_of_the_readme(learned: Database, tongue: Cluster) -> None:
    learned.make_queue("builds")
    page = (ROOT / "plpython/README.md").read_text(encoding="utf-8")
    example = re.search(
        r"^```sql\n(.*?)^```\n\n^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE
    )
    assert example
    printed = tongue.client("psql", ["-X", "-U", "t_producer"], learned.name, example[1])
    assert printed.strip() == example[2].strip()


@pytest.mark.parametrize(
    "plan",
    [[{"id": "a", "after": ["a"]}], [{"id": "a", "after": ["no"]}], [{"id": "a"}, {"id": "a"}]],
)
def test_each_fault_alone_is_not_ok(check: Callable[..., Row], plan: Any) -> None:
    assert not check(plan).ok


@pytest.mark.parametrize("plan", [{}, 1, [1], [{"id": 1}], [{"id": "a", "needs": ["b"]}]])
def test_what_is_no_plan_is_refused(
    learned: Database, check: Callable[..., Row], plan: object
) -> None:
    with learned.refused("22023") as refused:
        check(plan)
    assert "Pass an array of objects" in (refused.error.diag.message_hint or "")
    assert json.loads(refused.error.diag.message_detail or "") == {"argument": "plan"}


def test_null_and_unknown_are_refused(learned: Database, queue: str) -> None:
    with learned.refused("22004"):
        learned.call("t_producer", "eve_plan_check", queue=queue, plan=None)
    with learned.refused("22004"):
        learned.call("t_producer", "eve_plan_check", queue=None, plan=Jsonb([]))
    with learned.refused("P0002"):
        learned.call("t_producer", "eve_plan_check", queue="nowhere", plan=Jsonb([]))


def test_every_role_may_check_and_nobody_else(check: Callable[..., Row], learned: Database) -> None:
    for role in LOGINS.keys() - {"t_nobody"}:
        assert check(PLAN, role).ok
    with learned.refused("42501"):
        check(PLAN, "t_nobody")
    learned.make_queue("closed", access=False)
    with learned.refused("P0002"):
        learned.call("t_producer", "eve_plan_check", queue="closed", plan=Jsonb([]))


def test_only_the_own_queue_is_known(learned: Database, check: Callable[..., Row]) -> None:
    other = learned.make_queue("other")
    learned.call("t_producer", "eve_submit", queue=other, payload={}, work_id="elsewhere")
    assert check([{"id": "a", "after": ["elsewhere"]}]).unknown == {"elsewhere": ["a"]}


def test_a_check_writes_nothing(learned: Database, queue: str) -> None:
    reader = learned.connect("t_auditor", autocommit=True)
    reader.execute("set default_transaction_read_only to on")
    row = reader.execute("select ok from eve_plan_check(%s, %s)", [queue, Jsonb(PLAN)]).fetchone()
    assert row == (True,)


# --- estimates, and who may ask


def test_start_delays_are_those_of_the_module(learned: Database) -> None:
    cases: list[tuple[Any, ...]] = [
        (10, [40, 10, 20], [10.0, 10.0, 10.0], 0.5),
        (10, [0], [10.0], 0.5),
        (10, [5, None], [10.0, 10.0], 0.0),
        (0, None, None, None),
        (10, [], [], 0.1),
    ]
    for case in cases:
        found = learned.value(
            "select eve._start_delay(%s::bigint, %s::bigint[], %s::float8[], %s::float8)", case
        )
        assert found == start_delay(*case), case


@pytest.mark.parametrize("role", LOGINS)
def test_internals_are_for_nobody(learned: Database, role: str) -> None:
    for call in (
        "eve._jsonschema_faults('{}', null, '{}')",
        "eve._schema_fault('{}')",
        "eve._plan_faults('[]', null)",
        "eve._start_delay(1, null, null, null)",
    ):
        with learned.refused("42501"):
            learned.rows(f"select {call}", role=role)


def test_the_names_by_which_the_core_asks(learned: Database) -> None:
    for name in (
        "eve._jsonschema_faults(jsonb, bytea, jsonb)",
        "eve._schema_fault(jsonb)",
        "eve._plan_faults(jsonb, text[])",
        "eve._start_delay(bigint, bigint[], double precision[], double precision)",
    ):
        assert learned.value("select to_regprocedure(%s) is not null", [name]), name
