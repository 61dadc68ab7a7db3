"""Types and records of the tests here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from eve_queue.importers import Backlog, Json, Note, OnError

Write = Callable[[str, str | bytes], Path]
Notes = Callable[..., list[Note]]
Record = dict[str, Json] | str


class Beads(Protocol):
    def __call__(self, *records: Record, on_error: OnError = "continue") -> Backlog: ...


def issue(name: str, *after: str, **fields: Json) -> dict[str, Json]:
    """A beads record that waits for `after`."""
    edges: list[Json] = [
        {"issue_id": name, "depends_on_id": other, "type": "blocks"} for other in after
    ]
    made: dict[str, Json] = {"id": name, "title": f"do {name}", "dependencies": edges}
    return made | fields
