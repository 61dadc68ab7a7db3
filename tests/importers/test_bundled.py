"""The backlog that comes with the package is sound and worth draining."""

from __future__ import annotations

from eve_queue.importers import bundled, cycles, depth, stuck, waves


def test_the_bundled_backlog_is_sound_and_drains() -> None:
    backlog = bundled()
    assert [task.work_id for task in backlog.tasks] == [f"eve-{n}" for n in range(1, 43)]
    assert not any(note.fault for note in backlog.notes)
    assert cycles(backlog) == ()
    assert stuck(backlog) == ()
    assert depth(backlog) >= 6
    assert len(waves(backlog)) >= 6
    assert sum(map(len, waves(backlog))) == backlog.count("submit") == 38
    assert (backlog.count("verified"), backlog.count("hold")) == (3, 1)
    assert {task.rank for task in backlog.tasks} == {0, 1, 2, 3}
    assert sum("claim" in task.evidence for task in backlog.tasks) == 1


def test_the_bundled_backlog_is_written_by_nobody_and_complete() -> None:
    for task in bundled().tasks:
        assert task.payload["title"]
        assert task.payload["body"]
        assert task.requested_at is not None
        original = task.payload["original"]
        assert isinstance(original, dict)
        assert not {"assignee", "owner", "created_by"} & original.keys()
