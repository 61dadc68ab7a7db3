"""What every importer gives back: tasks, notes and the backlog that holds them. No database here.

Refuses: ids, text, numbers and nesting that the queue could not store as they are written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Format: TypeAlias = Literal["beads", "frontmatter", "debian", "github", "taskmaster"]
OnError: TypeAlias = Literal["continue", "stop"]
Outcome: TypeAlias = Literal["submit", "hold", "verified", "cancelled"]
NoteKind: TypeAlias = Literal["held", "merged", "refused", "dangling", "cycle", "noted"]

MAX_ID_BYTES = 512
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_DEPTH = 64
HOLD_OWNER = "operator"
_SHOWN = 96
_GO_ZERO_TIME = "0001-01-01T00:00:00Z"


class Refused(ValueError):
    """One record, field or file cannot be taken; the message is the reason. Importers catch it."""


class UnknownFormat(ValueError):
    """No importer recognises the source; name one with `format`."""


class ImportStopped(ValueError):
    """Raised under `on_error="stop"` at the first fault; `note` names line, id and reason."""

    def __init__(self, note: Note) -> None:
        super().__init__(str(note))
        self.note = note


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands in its source: a path as given, a line from 1 where there is one."""

    path: str
    line: int | None = None

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


class Edge(NamedTuple):
    """`work_id` waits for `after`."""

    work_id: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One unit of work as the source tells it, in words of the queue.

    `payload`: {"title", "body", "original"}; the three together are the whole foreign record.
    `rank`: 0 (most urgent) to 3.
    `outcome`: what the loader does. "submit" admits (edges may hold it), "hold" submits with a
    hold of `hold_owner` for `hold_reason`, "verified" and "cancelled" settle by import decision.
    `after`: work ids waited for, in source order, without repeats; ids that exist nowhere and
    cycles are kept, because the queue holds such work and never drops an edge.
    `requested_at`: UTC, or None where the source gives none or one without a zone;
    `requested_at_original`: the text as written.
    `evidence`: foreign status, and the foreign claim where somebody held the work. Never a lease.
    """

    work_id: str
    payload: Mapping[str, Json]
    rank: int
    outcome: Outcome
    place: Place
    hold_owner: str | None = None
    hold_reason: str | None = None
    after: tuple[str, ...] = ()
    requested_at: datetime | None = None
    requested_at_original: str | None = None
    group_label: str | None = None
    evidence: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One line of the import report.

    `id`: as written; only what is no id of the queue is escaped and cut. `fault`: something is
    wrong in the source, so `on_error="stop"` stops here.

    held: will wait for a person · merged: the same record twice, kept once · refused: not taken ·
    dangling: waits for an id that is not here · cycle: waits for itself · noted: worth knowing.
    """

    kind: NoteKind
    place: Place
    id: str | None
    reason: str
    fault: bool = False

    def __str__(self) -> str:
        return f"{shown(str(self.place))}  {shown(self.id or '-')}  {self.kind}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """A source as tasks in its own order, and everything that has to be said about it.

    `digest`: sha256 (hex) of the source: the bytes of a file, or names and bytes of a directory's
    task files. The same source gives the same digest, so it serves as the key of an import.
    """

    name: str
    format: Format
    digest: str
    tasks: tuple[Task, ...]
    notes: tuple[Note, ...]

    def by_id(self) -> dict[str, Task]:
        """Tasks by work id, in source order."""
        return {task.work_id: task for task in self.tasks}

    def edges(self) -> Iterator[Edge]:
        """Every edge of every task, finished ones too."""
        for task in self.tasks:
            for after in task.after:
                yield Edge(task.work_id, after)

    def count(self, outcome: Outcome) -> int:
        """How many tasks have this outcome."""
        return sum(task.outcome == outcome for task in self.tasks)


def shown(text: str) -> str:
    """Foreign text fit for one line of a report: controls escaped, long text cut."""
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
    return "".join(
        char
        if char.isprintable()
        else char.encode("unicode_escape", "surrogatepass").decode("ascii")
        for char in cut
    )


def quoted(value: object) -> str:
    """A foreign value in double quotes for a reason; numbers too long to print are named only."""
    try:
        return f'"{shown(value if isinstance(value, str) else json.dumps(value, default=str))}"'
    except (ValueError, RecursionError):
        return f"a value of type {type(value).__name__}"


def printable(name: str) -> str:
    """The name of a file as UTF-8 text; bytes that are none are written as \\x…"""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def work_id(value: object, *, what: str = "id") -> str:
    """The id exactly as written.

    Raises Refused for what is no text, empty, longer than 512 bytes, not storable, or of the form
    `~` and digits, which the queue gives to work without an id of its own.
    """
    if value is None:
        raise Refused(f"{what} is missing")
    if not isinstance(value, str):
        raise Refused(f"{what} is {quoted(value)}, which is no string")
    if not value.strip():
        raise Refused(f"{what} is empty")
    storable(value, what=what)
    size = len(value.encode())
    if size > MAX_ID_BYTES:
        raise Refused(f"{what} has {size} bytes, at most {MAX_ID_BYTES} are allowed")
    if value[0] == "~" and value[1:].isdecimal():
        raise Refused(f"{what} {quoted(value)} has the form that the queue gives to its own items")
    return value


def label(value: object) -> str | None:
    """A foreign name where it can serve as a label, else None; the payload keeps it."""
    try:
        return work_id(value)
    except Refused:
        return None


def storable(text: str, *, what: str = "text") -> None:
    """Raises Refused for NUL and for lone surrogates, which no UTF-8 database stores."""
    if "\x00" in text:
        raise Refused(f"{what} contains NUL")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise Refused(f"{what} contains half a surrogate pair")


def check_json(value: object) -> None:
    """Raises Refused for what jsonb cannot keep as written: NUL, infinity, foreign types, depth."""
    pending: list[tuple[object, int]] = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise Refused(f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(item, str):
            storable(item)
        elif isinstance(item, dict):
            for key, inner in item.items():
                if not isinstance(key, str):
                    raise Refused(f"key {quoted(key)} is no string")
                storable(key, what="key")
                pending.append((inner, depth + 1))
        elif isinstance(item, list):
            pending.extend((inner, depth + 1) for inner in item)
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise Refused("number out of range")
        elif item is not None and not isinstance(item, bool | int):
            raise Refused(f"a value of type {type(item).__name__} has no form in JSON")


def payload(title: object, body: object, original: dict[str, Json]) -> dict[str, Json]:
    """The payload of a task. Raises Refused for what cannot be stored or is larger than 1 MiB."""
    made: dict[str, Json] = {
        "title": title if isinstance(title, str) else "",
        "body": body if isinstance(body, str) else "",
        "original": original,
    }
    check_json(made)
    size = len(json.dumps(made, ensure_ascii=False).encode())
    if size > MAX_PAYLOAD_BYTES:
        raise Refused(f"the record has {size} bytes, at most {MAX_PAYLOAD_BYTES} are allowed")
    return made


@dataclass(frozen=True, slots=True)
class Instant:
    """A foreign time: UTC where it can be known, the original text, and why not where it cannot."""

    utc: datetime | None = None
    original: str | None = None
    problem: str | None = None


def instant(value: object) -> Instant:
    """ISO 8601 text to UTC. A time without zone, or a mere date, is kept as text, not guessed."""
    if value is None or value in ("", _GO_ZERO_TIME):
        return Instant()
    if not isinstance(value, str):
        return Instant(None, None, f"time {quoted(value)} is no string: not used")
    try:
        parsed = datetime.fromisoformat(value.strip())
    except ValueError:
        return Instant(None, value, f"time {quoted(value)} is not ISO 8601: not used")
    if parsed.tzinfo is None:
        return Instant(None, value, f"time {quoted(value)} has no zone: not converted")
    try:
        return Instant(parsed.astimezone(UTC), value)
    except OverflowError:
        return Instant(None, value, f"time {quoted(value)} is out of range: not used")
