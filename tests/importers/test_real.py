"""Backlogs of other projects, measured where they are at hand; nothing of them is kept here.

They are looked for in EVE_BACKLOGS, else in ../shared/data beside the checkout. With EVE_BACKLOGS
set, a missing file is a failure. Without any, the measurements are skipped, each by name, and
`test_real_backlogs_are_at_hand_or_said_to_be_missing` says so.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from eve_queue.importers import Backlog, cycles, depth, read, stuck, waves

FILES = ("beads-drain.jsonl", "wraith-tasks.tar", "debian-base.packages")
SAID = os.environ.get("EVE_BACKLOGS")
FOLDER = Path(SAID) if SAID else Path(__file__).parents[3] / "shared" / "data"
MISSING = [name for name in FILES if not (FOLDER / name).is_file()]
WHY = f"real backlogs not at hand: {', '.join(MISSING)}; set EVE_BACKLOGS to their folder"

measured = pytest.mark.skipif(bool(MISSING) and not SAID, reason=WHY)


def real(name: str) -> Backlog:
    return read(FOLDER / name)


def test_real_backlogs_are_at_hand_or_said_to_be_missing() -> None:
    if SAID:
        assert not MISSING, f"EVE_BACKLOGS is set, but not there: {', '.join(MISSING)}"
    elif MISSING:
        pytest.skip(WHY)


@measured
def test_beads_drains_in_two_waves() -> None:
    backlog = real(FILES[0])
    assert backlog.format == "beads"
    assert len(backlog.tasks) == 429
    assert backlog.count("submit") == 218
    assert backlog.count("verified") == 211
    assert [len(wave) for wave in waves(backlog)] == [184, 34]
    assert (cycles(backlog), stuck(backlog)) == ((), ())
    assert sum(1 for _ in backlog.edges()) == 60
    assert {note.kind for note in backlog.notes} == {"noted"}
    assert sum("claim" in task.evidence for task in backlog.tasks) == 4
    assert sum(task.evidence["priority"] == 4 for task in backlog.tasks) == 9


@measured
def test_task_files_have_one_way_in_and_depth_ten() -> None:
    backlog = real(FILES[1])
    assert backlog.format == "frontmatter"
    assert len(backlog.tasks) == 35
    assert backlog.count("submit") == 26
    assert sum(1 for _ in backlog.edges()) == 81
    assert depth(backlog) == 10
    assert [len(wave) for wave in waves(backlog)] == [1, 4, 3, 4, 5, 6, 3]
    opened = replace(
        backlog, tasks=tuple(replace(task, outcome="submit") for task in backlog.tasks)
    )
    assert len(waves(opened)[0]) == 1
    assert {task.rank for task in backlog.tasks} == {2}
    assert backlog.notes == ()


@measured
def test_packages_stop_at_three_cycles_and_drain_after_three_waivers() -> None:
    backlog = real(FILES[2])
    assert backlog.format == "debian"
    assert len(backlog.tasks) == backlog.count("submit") == 265
    assert sum(1 for _ in backlog.edges()) == 759
    assert {task.rank for task in backlog.tasks} == {0, 1, 2, 3}
    knots = cycles(backlog)
    assert [len(cycle.members) for cycle in knots] == [2, 2, 2]
    assert sum(map(len, waves(backlog))) == 28
    assert len(stuck(backlog)) == 237
    waived = {edge for cycle in knots for edge in cycle.waive}
    assert len(waived) == 3
    assert sum(map(len, waves(backlog, waived))) == 265
    assert [note.kind for note in backlog.notes] == ["cycle"] * 3
