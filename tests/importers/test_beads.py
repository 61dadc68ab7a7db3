"""Beads exports: ranks, outcomes, edges and claims."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from eve_queue.importers import ImportStopped, Json, cycles, read, stuck, waves
from importers.made import Beads, Notes, Write, issue


@pytest.mark.parametrize(
    ("priority", "rank"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (9, 3), (None, 0)]
)
def test_rank_is_the_priority_up_to_three_and_missing_is_most_urgent(
    beads: Beads, priority: int | None, rank: int
) -> None:
    task = beads(issue("a", priority=priority)).tasks[0]
    assert task.rank == rank
    assert task.evidence["priority"] == priority


def test_rank_of_a_record_without_priority_is_most_urgent(beads: Beads) -> None:
    assert beads({"id": "a", "title": "t"}).tasks[0].rank == 0


@pytest.mark.parametrize("priority", [-1, True, 1.5, "1", []])
def test_a_priority_that_is_no_number_is_refused_and_not_guessed(
    beads: Beads, notes: Notes, priority: Json
) -> None:
    backlog = beads(issue("a", priority=priority))
    assert backlog.tasks == ()
    (note,) = notes(backlog, "refused")
    assert (note.id, note.place.line) == ("a", 1)
    assert "priority" in note.reason


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("open", "submit"),
        ("", "submit"),
        ("in_progress", "submit"),
        ("hooked", "submit"),
        ("blocked", "submit"),
        ("deferred", "hold"),
        ("pinned", "hold"),
        ("a word of the future", "hold"),
        ("closed", "verified"),
        ("tombstone", "cancelled"),
    ],
)
def test_status_decides_the_outcome(beads: Beads, status: str, outcome: str) -> None:
    task = beads(issue("a", status=status)).tasks[0]
    assert task.outcome == outcome
    assert task.evidence["status"] == (status or "open")
    assert (task.hold_owner is not None) == (task.hold_reason is not None) == (outcome == "hold")


def test_a_hold_has_an_owner_and_a_reason(beads: Beads, notes: Notes) -> None:
    backlog = beads(
        issue("a", status="deferred", defer_until="2031-01-01"),
        issue("b", status="pinned", assignee="the archivist"),
    )
    first, second = backlog.tasks
    assert (first.hold_owner, second.hold_owner) == ("operator", "the archivist")
    assert first.hold_reason == 'foreign status "deferred" until "2031-01-01"'
    assert [(n.id, n.place.line) for n in notes(backlog, "held")] == [("a", 1), ("b", 2)]
    assert not any(note.fault for note in backlog.notes)


def test_a_foreign_claim_is_evidence_and_never_a_lease(beads: Beads, notes: Notes) -> None:
    backlog = beads(issue("a", status="in_progress", assignee="the baker"))
    assert backlog.tasks[0].outcome == "submit"
    assert backlog.tasks[0].evidence["claim"] == {"status": "in_progress", "holder": "the baker"}
    (note,) = notes(backlog, "noted")
    assert note.reason == 'claimed elsewhere by "the baker": kept as evidence, no lease'


def test_only_blocks_is_an_edge_and_the_rest_is_said(beads: Beads, notes: Notes) -> None:
    other: list[Json] = [
        {"issue_id": "a", "depends_on_id": "epic", "type": "parent-child"},
        {"issue_id": "a", "depends_on_id": "x", "type": "discovered-from"},
        {"issue_id": "a", "depends_on_id": "b", "type": "waits-for"},
        {"issue_id": "a", "depends_on_id": "b", "type": "blocks"},
        {"issue_id": "a", "depends_on_id": "b", "type": "blocks"},
    ]
    backlog = beads(issue("a", dependencies=other), issue("b"), issue("epic"))
    task = backlog.tasks[0]
    assert task.after == ("b",)
    assert task.group_label == "epic"
    original = task.payload["original"]
    assert isinstance(original, dict)
    assert original["dependencies"] == other
    said = [note.reason for note in notes(backlog, "noted")]
    assert 'dependency of type "waits-for" on "b" is no edge here' in said
    assert '1 dependencies of type "parent-child" are no edges; kept in the payload' in said
    assert notes(backlog, "dangling") == []


@pytest.mark.parametrize(
    "bad",
    [
        {"issue_id": "a", "type": "blocks"},
        {"issue_id": "a", "depends_on_id": 7, "type": "blocks"},
        {"issue_id": "other", "depends_on_id": "b", "type": "blocks"},
        {"issue_id": "a", "depends_on_id": "b"},
        "b",
    ],
)
def test_an_edge_that_cannot_be_read_holds_its_task(
    beads: Beads, notes: Notes, bad: dict[str, Json] | str
) -> None:
    backlog = beads(issue("a", dependencies=[bad]), issue("b"))
    assert backlog.tasks[0].outcome == "hold"
    assert backlog.tasks[0].hold_owner == "operator"
    assert notes(backlog, "refused")[0].id == "a"
    assert waves(backlog) == (("b",),)


def test_blocked_is_derived_from_the_edges(beads: Beads, notes: Notes) -> None:
    backlog = beads(issue("a", "b", status="blocked"), issue("b"), issue("c", status="blocked"))
    assert waves(backlog) == (("b", "c"), ("a",))
    assert [note.id for note in notes(backlog, "noted")] == ["c"]


def test_finished_work_frees_what_waits_and_cancelled_work_does_not(
    beads: Beads, notes: Notes
) -> None:
    backlog = beads(
        issue("a", "done"),
        issue("b", "gone"),
        issue("done", status="closed"),
        issue("gone", status="tombstone"),
    )
    assert waves(backlog) == (("a",),)
    assert stuck(backlog) == ("b",)
    (note,) = notes(backlog, "held")
    assert (note.id, note.place.line) == ("b", 2)
    assert "cancelled" in note.reason


def test_dangling_edges_are_kept_and_name_line_and_id(beads: Beads, notes: Notes) -> None:
    backlog = beads(issue("a", "nowhere"), '{"id": 5, "title": "x"}', issue("b", "a"))
    assert backlog.tasks[0].after == ("nowhere",)
    (note,) = notes(backlog, "dangling")
    assert (note.id, note.place.line) == ("a", 1)
    assert note.reason == 'waits for "nowhere", not in this backlog; the edge is kept'
    assert waves(backlog) == ()
    assert stuck(backlog) == ("a", "b")


def test_an_edge_to_a_refused_record_says_where_it_was_refused(beads: Beads, notes: Notes) -> None:
    backlog = beads(issue("a", "b"), issue("b", priority="x"))
    assert "issues.jsonl:2" in notes(backlog, "dangling")[0].reason


def test_the_same_record_twice_is_merged_and_another_is_refused(beads: Beads, notes: Notes) -> None:
    backlog = beads(issue("a"), issue("a"), issue("a", priority=3), issue("b"))
    assert [task.work_id for task in backlog.tasks] == ["a", "b"]
    assert backlog.tasks[0].rank == 0
    (merged,) = notes(backlog, "merged")
    (refused,) = notes(backlog, "refused")
    assert (merged.id, merged.place.line) == ("a", 2)
    assert (refused.id, refused.place.line) == ("a", 3)


def test_no_side_of_a_conflict_is_chosen(beads: Beads, notes: Notes) -> None:
    backlog = beads(
        issue("a"),
        "<<<<<<< ours",
        json.dumps(issue("b", priority=1)),
        "||||||| base",
        json.dumps(issue("b", priority=2)),
        "=======",
        json.dumps(issue("b", priority=3)),
        ">>>>>>> theirs",
        issue("c", "b"),
    )
    assert [task.work_id for task in backlog.tasks] == ["a", "c"]
    refused = notes(backlog, "refused")
    assert [note.place.line for note in refused] == [2, 3, 4, 5, 6, 7, 8]
    assert [note.id for note in refused if note.id] == ["b", "b", "b"]
    assert refused[1].reason == "inside the conflict that line 2 opens"
    assert [note.id for note in notes(backlog, "dangling")] == ["c"]


def test_a_conflict_that_is_not_closed_spoils_the_rest(beads: Beads, notes: Notes) -> None:
    backlog = beads(issue("a"), "<<<<<<< ours", issue("b"))
    assert [task.work_id for task in backlog.tasks] == ["a"]
    assert [note.id for note in notes(backlog, "refused")] == [None, "b"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "invalid JSON"),
        ('{"id": "a"', "invalid JSON"),
        ('{"id": "a"} {"id": "b"}', "more text"),
        ('["a"]', "not a JSON object"),
        ('{"title": "t"}', "id is missing"),
        ('{"id": "a", "id": "b"}', 'key "id" occurs twice'),
        ('{"id": "a", "status": 3}', "status"),
    ],
)
def test_bad_lines_are_named_and_the_others_are_read(
    beads: Beads, notes: Notes, line: str, said: str
) -> None:
    backlog = beads(issue("first"), line, issue("last"))
    assert [task.work_id for task in backlog.tasks] == ["first", "last"]
    (note,) = notes(backlog, "refused")
    assert note.place.line == 2
    assert said in note.reason
    assert note.fault


@pytest.mark.parametrize(
    "records",
    [
        ["{"],
        [issue("a"), issue("a")],
        [issue("a", "nowhere")],
        [issue("a", "b"), issue("b", "a")],
        ["<<<<<<< ours"],
        ['{"id": "a\x00"}'],
    ],
    ids=["json", "duplicate", "dangling", "cycle", "conflict", "nul"],
)
def test_stop_raises_at_the_first_fault(beads: Beads, records: list[dict[str, Json] | str]) -> None:
    with pytest.raises(ImportStopped) as caught:
        beads(*records, on_error="stop")
    assert caught.value.note.fault
    assert str(caught.value.note.place) in str(caught.value)
    assert any(note.fault for note in beads(*records).notes)


def test_stop_reads_a_sound_backlog_to_the_end(beads: Beads) -> None:
    backlog = beads(
        issue("a", status="deferred"),
        issue("b", "a"),
        issue("c", status="tombstone"),
        on_error="stop",
    )
    assert len(backlog.tasks) == 3


def test_a_record_of_another_type_is_no_work(beads: Beads, notes: Notes) -> None:
    backlog = beads({"_type": "memory", "id": "m"}, issue("a", _type="issue"))
    assert [task.work_id for task in backlog.tasks] == ["a"]
    assert notes(backlog, "noted")[0].reason == 'a record of type "memory" is no work'


@pytest.mark.parametrize(
    ("written", "utc"),
    [
        ("2031-05-01T10:00:00+02:00", datetime(2031, 5, 1, 8, tzinfo=UTC)),
        ("2031-05-01T10:00:00.123456789Z", datetime(2031, 5, 1, 10, 0, 0, 123456, tzinfo=UTC)),
        ("2031-05-01T10:00:00", None),
        ("2031-05-01", None),
        ("yesterday", None),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_times_become_utc_and_the_original_stays(
    beads: Beads, notes: Notes, written: str, utc: datetime | None
) -> None:
    backlog = beads(issue("a", created_at=written))
    task = backlog.tasks[0]
    assert task.requested_at == utc
    assert task.requested_at is None or task.requested_at.tzinfo is UTC
    assert task.requested_at_original == written
    assert len(notes(backlog, "noted")) == (utc is None)


def test_the_payload_is_the_whole_record(beads: Beads) -> None:
    record = issue("a", description="the body", labels=["x"], weight=1.5)
    payload = beads(record).tasks[0].payload
    assert payload["title"] == "do a"
    assert payload["body"] == "the body"
    assert payload["original"] == {
        key: value for key, value in record.items() if key not in ("title", "description")
    }


def test_a_cycle_is_reported_with_its_line_and_the_edge_to_waive(
    beads: Beads, notes: Notes
) -> None:
    backlog = beads(issue("a", "b"), issue("b", "a"), issue("c", "b"), issue("self", "self"))
    assert [cycle.members for cycle in cycles(backlog)] == [("a", "b"), ("self",)]
    first, second = notes(backlog, "cycle")
    assert (first.id, first.place.line) == ("b", 2)
    assert first.reason == "waits for itself: b → a → b; waive b → a"
    assert second.reason == "waits for itself: self → self; waive self → self"


def test_line_ends_of_windows_and_a_byte_order_mark_do_no_harm(write: Write) -> None:
    path = write("x.jsonl", b'\xef\xbb\xbf{"id":"a","status":"open"}\r\n\r\n{"id":"b"}\r\n')
    assert [(t.work_id, t.place.line) for t in read(path).tasks] == [("a", 1), ("b", 3)]
