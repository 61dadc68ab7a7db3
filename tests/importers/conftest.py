"""Sources made up for a test. Nothing of a foreign backlog is kept here.

write("a.jsonl", "…")            a file in the test's own folder
beads({"id": "a", …}, "raw line") a beads export of these lines, read
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eve_queue.importers import Backlog, Note, NoteKind, OnError, read
from importers.made import Beads, Notes, Record, Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


@pytest.fixture
def beads(write: Write) -> Beads:
    def make(*records: Record, on_error: OnError = "continue") -> Backlog:
        rows = (row if isinstance(row, str) else json.dumps(row) for row in records)
        return read(write("issues.jsonl", "\n".join(rows) + "\n"), "beads", on_error)

    return make


@pytest.fixture
def notes() -> Notes:
    """`notes(backlog, "refused")`: the notes of these kinds."""

    def pick(backlog: Backlog, *kinds: NoteKind) -> list[Note]:
        return [note for note in backlog.notes if note.kind in kinds]

    return pick
