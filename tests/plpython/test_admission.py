"""Payload schemas at the door: with the validator, without it, and when it comes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from support.database import Database
from support.desk import Desk
from support.fleet import Fleet

SCHEMA = {
    "type": "object",
    "properties": {"room": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["room"],
}
NUMBER = itertools.count(1)
STRICTER = {**SCHEMA, "required": ["room", "count"]}


@pytest.fixture
def desk(learned: Database) -> Iterator[Desk]:
    desk = Desk(learned, learned.make_queue(f"door {next(NUMBER)}"))
    yield desk
    assert desk.audit().clean


def verdict(answer: Any) -> Any:
    (step,) = [s for s in answer.evidence["steps"] if s["step"] == 12]
    return step


def test_a2_040_a_payload_is_judged_by_the_schema_of_its_class(desk: Desk) -> None:
    desk.define(replay_class="safe", schema=SCHEMA)
    good = desk.submit(payload={"room": "attic", "count": 2})
    assert (good.decision, verdict(good)["verdict"]) == ("ADMIT", "valid")
    bad = desk.submit(payload={"room": 1, "count": 0})
    assert (bad.decision, bad.reason, bad.item) == ("REJECT", "payload_invalid", None)
    assert [f["path"] for f in verdict(bad)["faults"]] == ["$.count", "$.room"]
    record = desk.db.row("select * from eve.submission where submission = %s", [bad.submission])
    assert record.evidence == bad.evidence


def test_a1_006_what_a_newer_schema_refuses_is_stored_but_not_leased(desk: Desk) -> None:
    desk.define(replay_class="safe", schema=SCHEMA)
    item = desk.item(payload={"room": "attic"})
    desk.define(replay_class="safe", schema=STRICTER)
    for named in ({}, {"item": item}):
        arguments: dict[str, Any] = named
        assert not desk.acquire(**arguments).granted
    last = desk.events(item)[-1]
    assert (last.kind, last.reason, last.revision) == ("held", "payload_invalid", 3)
    assert last.data["payload"]["faults"][0]["path"] == "$"
    desk.define(replay_class="safe", schema=SCHEMA)
    assert desk.lease().item == item


def test_a_document_that_is_no_schema_is_refused(desk: Desk) -> None:
    with desk.refused("22023"):
        desk.define(replay_class="safe", schema={"type": "nothing"})


def test_start_delays_come_from_the_lower_quartile(desk: Desk) -> None:
    desk.define(replay_class="safe", evidence="required", measure_window="10 min")
    (seen,) = desk.calls("t_operator", "eve_measure", **{"class": "default"})
    assert seen.start_delay.total_seconds() == 0


def test_without_the_validator_nobody_passes_and_nobody_is_lost(fleet: Fleet) -> None:
    with fleet.speaking().database() as db:
        desk = Desk(db, db.make_queue())
        desk.define(replay_class="safe", schema=SCHEMA)
        good = desk.submit(payload={"room": "attic"})
        bad = desk.submit(payload={"room": 1})
        for answer in (good, bad):
            assert (answer.decision, answer.reason) == ("HOLD", "validator_unavailable")
            assert verdict(answer)["verdict"] == "unavailable"
            assert not desk.acquire(item=answer.item).granted
        db.rows("create extension eve_plpython cascade")
        desk.sweep()
        assert desk.phase(good.item) == "ready"
        assert desk.holds(bad.item) == ["payload_invalid"]
        db.rows("drop extension eve_plpython")
        assert desk.lease().item == good.item  # judged under its own revision before
        assert desk.submit(payload={"room": "attic"}).reason == "validator_unavailable"
        db.rows("create extension eve_plpython")
        again = desk.call("t_operator", "eve_recheck")
        assert again.detail["changed"] == 1
        assert desk.audit().clean
