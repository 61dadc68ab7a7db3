"""Payloads and schemas: what is found, what is cut, what is never fetched and never a pass."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from eve_plpython import validate
from eve_plpython.validate import jsonschema_faults, schema_fault
from support.json_schemas import FORMATS, NO_SCHEMA, VALIDATED


def faults(schema: object, payload: object, digest: bytes | None = None) -> list[dict[str, str]]:
    found = json.loads(jsonschema_faults(json.dumps(schema), digest, json.dumps(payload)))
    assert isinstance(found, list)
    return found


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was tried")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.mark.parametrize(("schema", "payload", "expected"), VALIDATED)
def test_faults_by_path_and_keyword(schema: Any, payload: Any, expected: list[str]) -> None:
    assert [f"{f['path']} {f['keyword']}" for f in faults(schema, payload)] == expected


@pytest.mark.parametrize(("document", "begins"), NO_SCHEMA)
def test_what_is_no_schema(document: Any, begins: str | None) -> None:
    found = schema_fault(json.dumps(document))
    if begins is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(begins)
        assert faults(document, 1)[0]["keyword"] == "schema"


@pytest.mark.parametrize(("kind", "value", "valid"), FORMATS)
def test_formats_are_asserted(kind: str, value: str, valid: bool) -> None:
    assert (faults({"format": kind}, value) == []) == valid
    assert faults({"format": kind}, 12) == []


def test_messages_and_paths_are_cut() -> None:
    (fault,) = faults({"type": "integer"}, "x" * 100_000)
    assert len(fault["message"]) == 200
    assert fault["message"].endswith("…")
    (fault,) = faults({"additionalProperties": {"type": "integer"}}, {"k" * 100_000: ""})
    assert len(fault["path"]) == 300
    found = schema_fault(json.dumps({"type": "x" * 100_000}))
    assert found is not None
    assert len(found) == 300


def test_missing_is_never_a_pass() -> None:
    assert schema_fault(None) == "$: the schema is null"
    assert [f["keyword"] for f in json.loads(jsonschema_faults(None, None, "1"))] == ["schema"]
    assert [f["keyword"] for f in json.loads(jsonschema_faults("{}", None, None))] == ["payload"]


def test_what_the_library_stumbles_over_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert [f["keyword"] for f in json.loads(jsonschema_faults("{}", None, deep))] == ["schema"]
    assert schema_fault(deep) == "$: nested too deep"
    huge = "9" * 5000
    assert [f["keyword"] for f in json.loads(jsonschema_faults("{}", None, huge))] == ["payload"]
    assert (schema_fault(huge) or "").startswith("$: ValueError: ")

    def broken(*_: object) -> None:
        raise LookupError("broken")

    monkeypatch.setattr(validate, "found_by", broken)
    assert faults({}, 1) == [{"path": "$", "message": "LookupError: broken", "keyword": "payload"}]


def test_validators_are_kept_by_digest_and_the_least_used_go() -> None:
    validate.COMPILED.clear()
    for n in range(validate.KEPT + 10):
        faults({"const": n}, n, bytes([n]))
        assert faults({"const": "first"}, "first", b"first") == []
    assert len(validate.COMPILED) == validate.KEPT
    kept = validate.COMPILED[b"first"]
    assert faults({"const": "first"}, "other", b"first")[0]["keyword"] == "const"
    assert validate.COMPILED[b"first"] is kept
    assert bytes([0]) not in validate.COMPILED
    faults({"const": 1}, 1, None)
    assert len(validate.COMPILED) == validate.KEPT
    faults({"type": "nonsense"}, 1, b"faulty")
    assert b"faulty" not in validate.COMPILED
