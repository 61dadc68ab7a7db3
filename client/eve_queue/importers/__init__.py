"""Backlogs that people already have, as tasks for a queue: read, judged, reported. No database.

    from eve_queue.importers import read, report
    backlog = read("issues.jsonl")
    print(report(backlog))

Formats: beads JSONL, markdown task files with YAML front matter (directory, tar or one file),
Debian package stanzas, GitHub issues JSON, Taskmaster tasks.json. Every importer keeps the same
law: ids are never guessed; duplicates, dangling edges, cycles, conflict markers and unreadable
records are reported with line or path, id and reason; a foreign claim is evidence, never a lease.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from importlib.resources import as_file, files
from os import PathLike
from pathlib import Path
from typing import get_args

from . import beads, frontmatter, github, taskmaster
from .graph import Cycle, cycles, depth, stuck, waves
from .model import (
    Backlog,
    Edge,
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
    UnknownFormat,
    printable,
)
from .report import report
from .source import Collector, StrictJson, lines, read_bytes, unpacked

__all__ = [
    "Backlog",
    "Cycle",
    "Edge",
    "Format",
    "ImportStopped",
    "Json",
    "Note",
    "NoteKind",
    "OnError",
    "Outcome",
    "Place",
    "Refused",
    "Task",
    "UnknownFormat",
    "bundled",
    "cycles",
    "depth",
    "detect",
    "read",
    "report",
    "stuck",
    "waves",
]

FORMATS: tuple[Format, ...] = get_args(Format)
_SNIFFED_BYTES = 1024 * 1024
_STANZA = re.compile(rb"^Package:[ \t]*\S", re.MULTILINE)


def read(
    path: str | PathLike[str],
    format: Format | None = None,  # noqa: A002 - the word that callers type
    on_error: OnError = "continue",
) -> Backlog:
    """A backlog from a file, a tar or a directory; the format is detected where it is not named.

    Files may be compressed (gzip, bzip2, xz).

    Raises OSError where the source cannot be opened, UnknownFormat where it is of no known format,
    Refused where it is damaged or larger than 256 MiB, and under `on_error="stop"` ImportStopped at
    the first duplicate, dangling edge, cycle, conflict marker or unusable record. Under "continue"
    these are notes of the backlog.
    """
    if on_error not in get_args(OnError):
        raise ValueError(f'on_error is "{on_error}", expected "continue" or "stop"')
    if format is not None and format not in FORMATS:
        raise UnknownFormat(f'format is "{format}", expected one of {", ".join(FORMATS)}')
    source = Path(path)
    collector = Collector(
        printable(source.stem or source.resolve().name), printable(str(source)), on_error
    )
    if source.is_dir():
        if format not in (None, "frontmatter"):
            raise UnknownFormat(f"a directory holds task files with front matter, not {format}")
        return collector.finish("frontmatter", frontmatter.read_directory(source, collector))
    packed = read_bytes(source)
    digest = hashlib.sha256(packed).hexdigest()
    data = unpacked(packed)
    archive = format in (None, "frontmatter") and frontmatter.is_tar(data)
    found: Format = "frontmatter" if archive else format or detect(data, source.name)
    if archive:
        frontmatter.read_tar(data, collector)
    else:
        _reader(found)(data, collector)
    return collector.finish(found, digest)


def bundled() -> Backlog:
    """The backlog that comes with this package: building and running the queue itself."""
    with as_file(files("eve_queue") / "data" / "backlog.jsonl") as path:
        return read(path, "beads")


def detect(data: bytes, name: str = "") -> Format:
    """The format of a file from its content, its name only where the content says nothing.

    Raises UnknownFormat.
    """
    head = data[:_SNIFFED_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"---"):
        return "frontmatter"
    if head.startswith(b"["):
        return "github"
    if not head.startswith((b"{", b"<<<<<<<")) and _STANZA.search(head):
        return "debian"
    found = _detect_json(data)
    if found:
        return found
    if _STANZA.search(head):
        return "debian"
    by_name: dict[str, Format] = {".jsonl": "beads", ".md": "frontmatter", ".packages": "debian"}
    suffix = Path(name).suffix.casefold()
    if suffix in by_name:
        return by_name[suffix]
    raise UnknownFormat(f"no importer knows this content; name one of {', '.join(FORMATS)}")


def _detect_json(data: bytes) -> Format | None:
    strict = StrictJson()
    try:
        value = strict.value(data.decode("utf-8-sig").lstrip())[0]
        if taskmaster.looks_like(value):
            return "taskmaster"
    except (UnicodeDecodeError, Refused):
        pass
    for line in lines(data):
        try:
            record = strict.whole(line.text)
        except Refused:
            continue
        if isinstance(record, dict):
            if "number" in record:
                return "github"
            if "id" in record or "_type" in record:
                return "beads"
    return None


def _reader(kind: Format) -> Callable[[bytes, Collector], None]:
    if kind == "debian":
        from . import debian  # noqa: PLC0415 - python-debian is loaded only for stanzas

        return debian.read
    readers: dict[Format, Callable[[bytes, Collector], None]] = {
        "beads": beads.read,
        "github": github.read,
        "taskmaster": taskmaster.read,
        "frontmatter": lambda data, to: frontmatter.read_file(data, Place(to.path), to),
    }
    return readers[kind]
