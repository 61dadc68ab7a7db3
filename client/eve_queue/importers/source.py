"""Bytes to lines and values: files, conflict markers, strict JSON, and the collector of tasks.

Refuses: what is not UTF-8, NUL, lines inside an unresolved conflict, JSON that says a key twice.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import math
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, cast

from .graph import cycles
from .model import (
    Backlog,
    Format,
    ImportStopped,
    Json,
    Note,
    NoteKind,
    OnError,
    Outcome,
    Place,
    Refused,
    Task,
    quoted,
    shown,
)
from .model import work_id as checked_id

MAX_SOURCE_BYTES = 256 * 1024 * 1024
MAX_LINE_BYTES = 4 * 1024 * 1024
_CONFLICT = re.compile(rb"(<{7}|\|{7}|={7}|>{7})(?:[ \r]|$)")
_PACKED: dict[bytes, Callable[[BinaryIO], BinaryIO]] = {
    b"\x1f\x8b": lambda file: cast("BinaryIO", gzip.GzipFile(fileobj=file)),
    b"BZh": lambda file: cast("BinaryIO", bz2.BZ2File(file)),
    b"\xfd7zXZ": lambda file: cast("BinaryIO", lzma.LZMAFile(file)),  # noqa: SIM115
}
_OPENS = re.compile(r"<{7}(?:[ \r]|$)")
_SPACE = re.compile(r"[ \t\r\n]*")


def read_bytes(path: Path) -> bytes:
    """The bytes of a file. Raises OSError as the system does, Refused beyond 256 MiB."""
    size = path.stat().st_size
    if size > MAX_SOURCE_BYTES:
        raise Refused(f"{path} has {size} bytes, at most {MAX_SOURCE_BYTES} are read")
    return path.read_bytes()


def unpacked(data: bytes) -> bytes:
    """The content of gzip, bzip2 or xz, other bytes as they are. Raises Refused beyond 256 MiB."""
    opener = next((opener for magic, opener in _PACKED.items() if data.startswith(magic)), None)
    if opener is None:
        return data
    try:
        with opener(io.BytesIO(data)) as file:
            content = file.read(MAX_SOURCE_BYTES + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise Refused(f"the compressed file is damaged: {error}") from None
    if len(content) > MAX_SOURCE_BYTES:
        raise Refused(f"unpacks to more than {MAX_SOURCE_BYTES} bytes")
    return content


def text(data: bytes) -> str:
    """UTF-8 text without a byte order mark. Raises Refused for other encodings and for NUL."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Refused("this is UTF-16, not UTF-8")
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = data.count(b"\n", 0, error.start) + 1
        raise Refused(f"invalid UTF-8 in line {at}: byte 0x{data[error.start]:02x}") from None
    if "\x00" in decoded:
        raise Refused("contains NUL")
    return decoded


@dataclass(frozen=True, slots=True)
class Line:
    """A line from 1 with its text, or the reason why it cannot be used."""

    number: int
    text: str
    problem: str | None = None


def lines(data: bytes) -> Iterator[Line]:
    """Every line that is not blank; unusable ones come with their problem, conflicts as a whole.

    Between `<<<<<<<` and `>>>>>>>` neither side is taken: to choose one would be to guess.
    """
    start: int | None = None
    problem: str | None
    for number, row in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        raw = row.removesuffix(b"\r")
        if not raw.strip():
            continue
        marker = _CONFLICT.match(raw)
        if marker:
            opens, closes = marker[1][:1] == b"<", marker[1][:1] == b">"
            if opens and start is None:
                start = number
            if start is not None or closes:
                yield Line(number, "", f"conflict marker {marker[1].decode()}")
                start = None if closes else start
                continue
        if len(raw) > MAX_LINE_BYTES:
            yield Line(number, "", f"line has {len(raw)} bytes, at most {MAX_LINE_BYTES} are read")
            continue
        try:
            decoded = raw.decode()
        except UnicodeDecodeError as error:
            problem = f"invalid UTF-8: byte 0x{raw[error.start]:02x} at column {error.start + 1}"
            yield Line(number, raw.decode(errors="replace"), problem)
            continue
        problem = None
        if start is not None:
            problem = f"inside the conflict that line {start} opens"
        elif "\x00" in decoded:
            problem = "contains NUL"
        yield Line(number, decoded, problem)


def conflict_line(rows: list[str]) -> int | None:
    """The first line (from 1) that opens a conflict, or None."""
    return next((at for at, row in enumerate(rows, 1) if _OPENS.match(row)), None)


class StrictJson:
    """JSON as the database reads it, not as Python forgives it; `faults` of the last value read."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_constant=self._constant,
            parse_float=self._float,
            parse_int=self._int,
        )

    def value(self, source: str, at: int = 0) -> tuple[Json, int]:
        """The value that starts at `at`, and where it ends. Raises Refused for invalid JSON."""
        self.faults = []
        try:
            found: tuple[Json, int] = self._decoder.raw_decode(source, at)
        except json.JSONDecodeError as error:
            raise Refused(f"invalid JSON: {error.msg} (column {error.colno})") from None
        except RecursionError:
            raise Refused("invalid JSON: nested too deeply to read") from None
        return found

    def whole(self, source: str) -> Json:
        """The one value of a text. Raises Refused for invalid JSON, faults, and text after it."""
        found, end = self.value(source, skip_space(source, 0))
        if skip_space(source, end) != len(source):
            raise Refused(f"invalid JSON: more text after the value (column {end + 1})")
        if self.faults:
            raise Refused(self.faults[0])
        return found

    def _object(self, pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        made: dict[str, Json] = {}
        for key, value in pairs:
            if key in made:
                self.faults.append(f"key {quoted(key)} occurs twice in one object")
            made[key] = value
        return made

    def _constant(self, word: str) -> Json:
        self.faults.append(f"{word} is no JSON number")
        return None

    def _float(self, digits: str) -> Json:
        number = float(digits)
        if not math.isfinite(number):
            self.faults.append(f"number {shown(digits)} is out of range")
            return None
        return number

    def _int(self, digits: str) -> Json:
        try:
            return int(digits)
        except ValueError:
            self.faults.append(f"number of {len(digits)} digits is out of range")
            return None


def skip_space(source: str, at: int) -> int:
    """The first position from `at` that is no JSON white space."""
    found = _SPACE.match(source, at)
    return found.end() if found else at


def elements(source: str) -> Iterator[tuple[int, Json, str | None]]:
    """Line, value and fault of each element of a JSON array, or of several one after another.

    Where the text stops being JSON nothing after it can be told apart: raises Refused there.
    """
    strict = StrictJson()
    line, counted, at = 1, 0, skip_space(source, 0)
    while at < len(source):
        if source[at] != "[":
            raise Refused(f"invalid JSON: expected an array (line {line})")
        at = skip_space(source, at + 1)
        closed = source[at : at + 1] == "]"
        while not closed:
            line, counted = line + source.count("\n", counted, at), at
            try:
                value, at = strict.value(source, at)
            except Refused as refusal:
                raise Refused(f"{refusal}; line {line} and all after it are not read") from None
            yield line, value, strict.faults[0] if strict.faults else None
            at = skip_space(source, at)
            follows = source[at : at + 1]
            if follows not in (",", "]"):
                raise Refused(f"invalid JSON: the array breaks off after the value of line {line}")
            closed = follows == "]"
            at = at if closed else skip_space(source, at + 1)
        at = skip_space(source, at + 1)


@dataclass
class Collector:
    """Tasks and notes of one source; the only place that judges duplicates, edges and cycles."""

    name: str
    path: str
    on_error: OnError
    tasks: dict[str, Task] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def note(
        self,
        kind: NoteKind,
        place: Place,
        name: str | None,
        reason: str,
        *,
        fault: bool = False,
    ) -> None:
        """Remember one line of the report. Raises ImportStopped for a fault under "stop"."""
        made = Note(kind=kind, place=place, id=_name(name), reason=reason, fault=fault)
        self.notes.append(made)
        if fault and self.on_error == "stop":
            raise ImportStopped(made)

    def refuse(self, place: Place, name: object, reason: str, *, fault: bool = True) -> None:
        """Note that a record is not taken, and remember why for those that wait for it."""
        if isinstance(name, str):
            self.refused.setdefault(name, f"refused at {shown(str(place))}")
        said = name if isinstance(name, str) else None if name is None else quoted(name)
        self.note("refused", place, said, reason, fault=fault)

    def unreadable_edge(self, place: Place, name: str, problem: str, outcome: Outcome) -> Outcome:
        """The outcome of a task with an edge that cannot be read: never free to start."""
        held = outcome == "submit"
        self.note("refused", place, name, f"{problem}{'; held' if held else ''}", fault=True)
        return "hold" if held else outcome

    def add(self, task: Task) -> None:
        """Keep a task. The same record again is merged; another record under its id is refused."""
        first = self.tasks.setdefault(task.work_id, task)
        if first is task:
            return
        where = shown(str(first.place))
        if replace(task, place=first.place) == first:
            self.note("merged", task.place, task.work_id, f"same record as {where}", fault=True)
        else:
            reason = f"another record under the id of {where}; the first is kept"
            self.note("refused", task.place, task.work_id, reason, fault=True)

    def finish(self, kind: Format, digest: str) -> Backlog:
        """Judge the edges and close. Dangling edges and cycles are reported and kept."""
        for task in self.tasks.values():
            self._judge_edges(task)
        made = Backlog(
            name=self.name,
            format=kind,
            digest=digest,
            tasks=tuple(self.tasks.values()),
            notes=(),
        )
        for cycle in cycles(made):
            way = _arrows((*cycle.path, cycle.path[0]))
            waive = ", ".join(map(_arrows, cycle.waive))
            size = len(cycle.members)
            also = "" if size == len(cycle.path) else f" (one of several ways through {size} tasks)"
            self.note(
                "cycle",
                self.tasks[cycle.path[0]].place,
                cycle.path[0],
                f"waits for itself: {way}{also}; waive {waive}",
                fault=True,
            )
        return replace(made, notes=tuple(self.notes))

    def _judge_edges(self, task: Task) -> None:
        if task.outcome == "hold":
            reason = f"{task.hold_reason}; owner {quoted(task.hold_owner)}"
            self.note("held", task.place, task.work_id, reason)
        for after in task.after:
            other = self.tasks.get(after)
            if other is None:
                why = self.refused.get(after, "not in this backlog")
                reason = f"waits for {quoted(after)}, {why}; the edge is kept"
                self.note("dangling", task.place, task.work_id, reason, fault=True)
            elif other.outcome == "cancelled" and task.outcome in ("submit", "hold"):
                reason = f"waits for {quoted(after)}, which is cancelled: it waits for a waiver"
                self.note("held", task.place, task.work_id, reason)


def _name(name: str | None) -> str | None:
    """An id for a note: as written, but escaped and cut where it is no id of the queue."""
    try:
        return name if name is None else checked_id(name)
    except Refused:
        return shown(name or "")


def _arrows(names: tuple[str, ...]) -> str:
    return " → ".join(map(shown, names))
