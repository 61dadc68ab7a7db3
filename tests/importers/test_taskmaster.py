"""Taskmaster: both shapes, tags, subtasks."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from eve_queue.importers import Backlog, Json, read, waves
from importers.made import Notes, Write

Tasks = Callable[[Json], Backlog]


@pytest.fixture
def tasks(write: Write) -> Tasks:
    def make(value: Json) -> Backlog:
        return read(write("tasks.json", json.dumps(value, indent=2)))

    return make


def test_numbers_and_strings_are_ids_and_states_and_ranks_follow_the_words(tasks: Tasks) -> None:
    backlog = tasks(
        {
            "tasks": [
                {"id": 1, "title": "one", "status": "done", "priority": "high"},
                {"id": "2", "title": "two", "status": "pending", "dependencies": [1]},
                {"id": 3, "status": "deferred", "priority": "low", "dependencies": ["2"]},
                {"id": 4, "status": "in-progress", "priority": "medium"},
                {"id": 5, "status": "cancelled"},
            ]
        }
    )
    assert backlog.format == "taskmaster"
    assert [(t.work_id, t.outcome, t.rank, t.after) for t in backlog.tasks] == [
        ("1", "verified", 1, ()),
        ("2", "submit", 2, ("1",)),
        ("3", "hold", 3, ("2",)),
        ("4", "submit", 2, ()),
        ("5", "cancelled", 2, ()),
    ]


def test_ids_are_unique_only_within_a_tag(tasks: Tasks) -> None:
    backlog = tasks(
        {
            "master": {"tasks": [{"id": 1}, {"id": 2, "dependencies": [1]}], "metadata": {}},
            "other": {"tasks": [{"id": 1, "dependencies": [2]}, {"id": 2}]},
        }
    )
    assert [(t.work_id, t.after, t.group_label) for t in backlog.tasks] == [
        ("master/1", (), "master"),
        ("master/2", ("master/1",), "master"),
        ("other/1", ("other/2",), "other"),
        ("other/2", (), "other"),
    ]


def test_subtasks_wait_for_siblings_and_for_what_their_parent_waits_for(tasks: Tasks) -> None:
    backlog = tasks(
        {
            "tasks": [
                {"id": 1},
                {
                    "id": 2,
                    "dependencies": [1],
                    "subtasks": [
                        {"id": 1},
                        {"id": 2, "dependencies": [1]},
                        {"id": 3, "dependencies": ["2.2"]},
                    ],
                },
            ]
        }
    )
    assert {t.work_id: t.after for t in backlog.tasks} == {
        "1": (),
        "2": ("1", "2.1", "2.2", "2.3"),
        "2.1": ("1",),
        "2.2": ("1", "2.1"),
        "2.3": ("1", "2.2"),
    }
    assert waves(backlog) == (("1",), ("2.1",), ("2.2",), ("2.3",), ("2",))


def test_what_cannot_be_read_is_named(tasks: Tasks, notes: Notes) -> None:
    backlog = tasks(
        {
            "tasks": [
                {"title": "no id"},
                {"id": 1.5},
                {"id": [1]},
                "text",
                {"id": 1, "dependencies": [True]},
                {"id": 2, "dependencies": "1"},
                {"id": 3, "dependencies": [9]},
                {"id": 3},
            ]
        }
    )
    assert [(t.work_id, t.outcome) for t in backlog.tasks] == [
        ("1", "hold"),
        ("2", "hold"),
        ("3", "submit"),
    ]
    assert len(notes(backlog, "refused")) == 7
    assert [note.id for note in notes(backlog, "dangling")] == ["3"]


def test_a_file_that_is_no_json_is_one_refusal(write: Write, notes: Notes) -> None:
    backlog = read(write("tasks.json", '{"tasks": ['), "taskmaster")
    assert "invalid JSON" in notes(backlog, "refused")[0].reason
