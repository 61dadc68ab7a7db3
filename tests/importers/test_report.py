"""The report names line, id and reason, as text and as JSON."""

from __future__ import annotations

import json

from eve_queue.importers import report
from importers.made import Beads, issue


def test_the_text_names_line_id_and_reason_by_kind(beads: Beads) -> None:
    backlog = beads(
        issue("a", "b"),
        issue("b", "a"),
        issue("c", status="deferred"),
        issue("d", "nowhere"),
        issue("d", "nowhere"),
        "[]",
        issue("e", status="closed"),
        issue("f", status="in_progress"),
        issue("g", "a"),
    )
    path = str(backlog.tasks[0].place).removesuffix(":1")
    assert report(backlog).splitlines() == [
        f"backlog issues (beads), sha256 {backlog.digest}",
        "tasks 7: 5 to submit, 1 to hold, 1 verified elsewhere, 0 cancelled elsewhere",
        "edges 4, depth 1, ready at once 1, waves 1, cycles 1, cannot start 4",
        "cannot start: a, b, d, g wait, at last, for what is reported below",
        "",
        "refused (not taken, or not readable): 1",
        f"  {path}:6  -  not a JSON object",
        "",
        "merged (said twice, kept once): 1",
        f"  {path}:5  d  same record as {path}:4",
        "",
        "dangling (waits for an id that is not here; the edge is kept): 1",
        f'  {path}:4  d  waits for "nowhere", not in this backlog; the edge is kept',
        "",
        "cycles (nothing in them can start until a person waives an edge): 1",
        f"  {path}:1  a  waits for itself: a → b → a; waive a → b",
        "",
        "held (waits for a person): 1",
        f'  {path}:3  c  foreign status "deferred"; owner "operator"',
        "",
        "noted: 1",
        f"  {path}:8  f  claimed elsewhere by nobody named: kept as evidence, no lease",
    ]


def test_the_json_has_the_same_facts(beads: Beads) -> None:
    backlog = beads(issue("a", "b"), issue("b", "a"), issue("c"), issue("d", "c"))
    facts = json.loads(report(backlog, as_json=True))
    assert facts["outcomes"] == {"submit": 4, "hold": 0, "verified": 0, "cancelled": 0}
    assert (facts["tasks"], facts["edges"], facts["waves"]) == (4, 3, [1, 1])
    assert facts["stuck"] == ["a", "b"]
    assert facts["cycles"] == [
        {"members": ["a", "b"], "path": ["a", "b"], "waive": [{"work_id": "a", "after": "b"}]}
    ]
    assert [(note["kind"], note["line"], note["id"]) for note in facts["notes"]] == [
        ("cycle", 1, "a")
    ]


def test_a_sound_backlog_says_that_nothing_was_held(beads: Beads) -> None:
    assert report(beads(issue("a"))).endswith("nothing held, merged or refused\n")
