"""GitHub issues: both shapes, ids, edges in the body, labels, states."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from eve_queue.importers import Backlog, Json, read, waves
from importers.made import Notes, Write

Issues = Callable[..., Backlog]


def rest(
    number: int, body: str | None = None, repo: str = "o/r", **fields: Json
) -> dict[str, Json]:
    made: dict[str, Json] = {
        "number": number,
        "title": f"issue {number}",
        "body": body,
        "state": "open",
        "html_url": f"https://git.example/{repo}/issues/{number}",
        "created_at": "2031-01-02T03:04:05Z",
    }
    return made | fields


@pytest.fixture
def issues(write: Write) -> Issues:
    def make(*records: Json) -> Backlog:
        return read(write("issues.json", json.dumps(list(records), indent=2)))

    return make


def test_the_rest_shape(issues: Issues) -> None:
    backlog = issues(
        rest(1, milestone={"title": "first"}, labels=[{"name": "P1"}]),
        rest(2, "Blocked by #1\n", assignees=[{"login": "the-smith"}]),
    )
    first, second = backlog.tasks
    assert backlog.format == "github"
    assert (first.work_id, first.rank, first.group_label) == ("o/r#1", 1, "first")
    assert first.requested_at == datetime(2031, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert first.place.line == 2
    assert (second.after, second.rank) == (("o/r#1",), 2)
    assert second.evidence["claim"] == {"assignees": [{"login": "the-smith"}]}
    assert waves(backlog) == (("o/r#1",), ("o/r#2",))


def test_the_shape_of_the_command_line_tool(write: Write) -> None:
    rows = [
        {"number": 7, "title": "t", "state": "OPEN", "stateReason": "", "labels": [], "body": ""},
        {
            "number": 8,
            "title": "u",
            "state": "CLOSED",
            "stateReason": "COMPLETED",
            "body": "Depends on #7",
            "createdAt": "2031-01-02T03:04:05Z",
        },
    ]
    lines = read(write("a.jsonl", "\n".join(map(json.dumps, rows))))
    array = read(write("a.json", json.dumps(rows)))
    assert [t.work_id for t in lines.tasks] == [t.work_id for t in array.tasks] == ["#7", "#8"]
    assert lines.tasks[1].after == ("#7",)
    assert lines.tasks[1].outcome == "verified"
    assert [task.place.line for task in lines.tasks] == [1, 2]


def test_pages_written_one_after_another_are_one_backlog(write: Write) -> None:
    pages = json.dumps([rest(1)]) + "\n[]\n" + json.dumps([rest(2), rest(3)])
    assert [t.work_id for t in read(write("p.json", pages)).tasks] == ["o/r#1", "o/r#2", "o/r#3"]


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("Blocked by #5", ["o/r#5"]),
        ("text\r\n- blocked by: #5, #6 and GH-7\r\nmore", ["o/r#5", "o/r#6", "o/r#7"]),
        ("* [ ] **Depends on** other/repo#5", ["other/repo#5"]),
        ("1. depends upon https://git.example/o/r/issues/5", ["o/r#5"]),
        ("> Depends on: O/R#5", ["o/r#5"]),
        ("DEPENDS ON #5 #5", ["o/r#5"]),
        ("blocked by\t#5\nblocked on #6", ["o/r#5", "o/r#6"]),
        ("### Blocked by #5", ["o/r#5"]),
        ("```\nBlocked by #5\n```\n", []),
        ("~~~\nBlocked by #5\n```\nDepends on #6\n~~~", []),
        ("<!-- Blocked by #5 -->", []),
        ("<!--\nBlocked by #5\n-->\nDepends on #6", ["o/r#6"]),
        ("not blocked by #5", []),
        ("Blocked by the weather", []),
        ("Blocks #5", []),
        ("Depends only on #5", []),
        (None, []),
    ],
)
def test_edges_are_lines_of_the_body(issues: Issues, body: str | None, after: list[str]) -> None:
    assert list(issues(rest(1, body)).tasks[0].after) == after


def test_a_mention_inside_a_sentence_is_noted_and_no_edge(issues: Issues, notes: Notes) -> None:
    backlog = issues(rest(1, "We are blocked by #2 I think.\nBlocked by nobody"), rest(2))
    assert backlog.tasks[0].after == ()
    assert [note.reason for note in notes(backlog, "noted")] == [
        'mentions "blocked by #2" inside a sentence: no edge',
        '"Blocked by nobody" names no issue: no edge',
    ]


@pytest.mark.parametrize(
    ("labels", "rank"),
    [
        ([], 2),
        (["bug"], 2),
        (["P0"], 0),
        (["p3"], 3),
        (["P4"], 3),
        (["priority: high"], 1),
        (["priority/critical-urgent"], 0),
        (["Priority:Low"], 3),
        (["prio-medium"], 2),
        (["priority:P1"], 1),
        (["P2", "priority: critical"], 0),
        (["python", "p2p", "P1.5"], 2),
    ],
)
def test_labels_give_the_rank(issues: Issues, labels: list[str], rank: int) -> None:
    assert issues(rest(1, labels=[{"name": name} for name in labels])).tasks[0].rank == rank
    assert issues(rest(1, labels=list[Json](labels))).tasks[0].rank == rank


def test_unknown_and_disagreeing_priorities_are_said(issues: Issues, notes: Notes) -> None:
    backlog = issues(rest(1, labels=["priority: whenever"]), rest(2, labels=["P1", "P3"]))
    assert [(note.id, note.reason.split(":")[0]) for note in notes(backlog, "noted")] == [
        ("o/r#1", 'unknown priority label "priority'),
        ("o/r#2", "priority labels disagree"),
    ]


@pytest.mark.parametrize(
    ("state", "reason", "outcome", "said"),
    [
        ("open", None, "submit", 0),
        ("open", "reopened", "submit", 0),
        ("closed", "completed", "verified", 0),
        ("CLOSED", "NOT_PLANNED", "cancelled", 0),
        ("closed", "duplicate", "cancelled", 0),
        ("closed", None, "verified", 1),
        ("closed", "a new word", "verified", 1),
    ],
)
def test_states(
    issues: Issues, notes: Notes, state: str, reason: str | None, outcome: str, said: int
) -> None:
    backlog = issues(rest(1, state=state, state_reason=reason))
    assert backlog.tasks[0].outcome == outcome
    assert len(notes(backlog, "noted")) == said


@pytest.mark.parametrize(
    "fields",
    [{"pull_request": {"url": "x"}}, {"html_url": "https://git.example/o/r/pull/2"}],
)
def test_pull_requests_are_refused_and_no_fault(
    issues: Issues, notes: Notes, fields: dict[str, Json]
) -> None:
    backlog = issues(rest(1, "Depends on #2"), rest(2) | fields)
    assert [task.work_id for task in backlog.tasks] == ["o/r#1"]
    (refused,) = notes(backlog, "refused")
    assert (refused.id, refused.fault) == ("o/r#2", False)
    assert "refused at" in notes(backlog, "dangling")[0].reason


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"title": "t", "state": "open"}, "number is missing"),
        ({"number": "5", "state": "open"}, "no issue number"),
        ({"number": True, "state": "open"}, "no issue number"),
        ({"number": -5, "state": "open"}, "no issue number"),
        ({"number": 10**30, "state": "open"}, "no issue number"),
        ({"number": 5}, "state"),
        (rest(5, html_url="https://git.example/o/r/issues/6"), "that of 6"),
        ("text", "not a JSON object"),
    ],
)
def test_records_without_a_sure_id_or_state_are_refused(
    issues: Issues, notes: Notes, record: Json, said: str
) -> None:
    backlog = issues(rest(1), record, rest(2))
    assert [task.work_id for task in backlog.tasks] == ["o/r#1", "o/r#2"]
    (note,) = notes(backlog, "refused")
    assert said in note.reason
    assert note.place.line is not None


def test_issues_of_two_repositories_do_not_meet(issues: Issues) -> None:
    backlog = issues(
        rest(1, "Depends on b/b#1", repo="a/a"), rest(1, "Depends on A/A#1", repo="b/b")
    )
    assert [(t.work_id, t.after) for t in backlog.tasks] == [
        ("a/a#1", ("b/b#1",)),
        ("b/b#1", ("a/a#1",)),
    ]


def test_an_array_that_breaks_off_gives_what_came_before(write: Write, notes: Notes) -> None:
    whole = json.dumps([rest(1), rest(2)], indent=1)
    backlog = read(write("cut.json", whole[:-60]))
    assert [task.work_id for task in backlog.tasks] == ["o/r#1"]
    assert "all after it are not read" in notes(backlog, "refused")[0].reason


def test_a_conflict_in_an_array_is_named_by_line(write: Write, notes: Notes) -> None:
    backlog = read(write("c.json", "[\n<<<<<<< ours\n{}\n>>>>>>> theirs\n]"))
    assert [n.place.line for n in notes(backlog, "refused")][:2] == [2, 4]


def test_blockers_that_the_record_does_not_name_are_said(issues: Issues, notes: Notes) -> None:
    backlog = issues(rest(1, issue_dependencies_summary={"total_blocked_by": 2}))
    assert "counts 2 blockers" in notes(backlog, "noted")[0].reason
