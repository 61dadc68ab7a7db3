"""Markdown task files with YAML front matter, in a directory, in a tar, or a single one.

Rules. The id is the field `id` exactly as written, never the file's name. `name` or `title` is the
title, the text below the front matter the body. `depends_on`, `dependencies` and `blocked_by` are
edges: a list of ids, or one line of ids between commas. `completed` and `done` are verified,
`cancelled` cancelled, `deferred` held; every other word is submitted, a claim (`in-progress`) as
evidence. Without a priority the rank is 2.

Scalars stay text (only null, true and false are read as such): YAML would turn the id 010 into 8
and lose how a date was written. Aliases are refused: they serve bombs and no task file.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Hashable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from .model import (
    HOLD_OWNER,
    ImportStopped,
    Json,
    Outcome,
    Place,
    Refused,
    Task,
    instant,
    label,
    payload,
    printable,
    quoted,
)
from .model import work_id as checked_id
from .source import Collector, conflict_line, text
from .words import CLAIMED, DEFAULT_RANK, fold, outcome_of, rank_of

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_FRONT_MATTER_BYTES = 64 * 1024
MAX_YAML_DEPTH = 32
MAX_MEMBERS = 100_000
_SUFFIXES = (".md", ".markdown")
_EDGES = ("depends_on", "dependencies", "blocked_by")
_TIMES = ("created_at", "created", "created_date")
_GROUPS = ("group", "milestone", "epic")
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")


def read_directory(path: Path, collector: Collector) -> str:
    """Every task file below a directory, in the order of the names; hidden names are passed over.

    Returns the sha256 over names and bytes of the files read.
    """
    total = hashlib.sha256()
    names = _task_files(path, collector)
    for name in names:
        place = Place(printable(name))
        data = b""
        try:
            data = _read(path / name)
        except OSError as error:
            collector.refuse(place, None, f"not readable: {error.strerror}")
        except Refused as refusal:
            collector.refuse(place, None, str(refusal))
        else:
            read_file(data, place, collector)
        for part in (os.fsencode(name), data):
            total.update(len(part).to_bytes(8, "big") + part)
    _say_if_empty(names, collector)
    return total.hexdigest()


def _read(path: Path) -> bytes:
    if path.is_symlink() or not path.is_file():
        raise Refused("links and special files are not followed")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise Refused(f"larger than {MAX_FILE_BYTES} bytes")
    return path.read_bytes()


def is_tar(data: bytes) -> bool:
    """Whether the bytes begin as a tar does; compressed ones do not."""
    try:
        tarfile.open(fileobj=io.BytesIO(data), mode="r:").close()
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return False
    return True


def read_tar(data: bytes, collector: Collector) -> None:
    """Every task file of a tar, by name; nothing is unpacked to disk."""
    found: dict[str, tuple[Place, bytes]] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in _members(archive):
                name = printable(member.name)
                place = Place(name)
                if member.isdir() or not _is_task_file(name):
                    continue
                if not member.isreg():
                    collector.refuse(place, None, "links and special files are not followed")
                elif member.size > MAX_FILE_BYTES:
                    collector.refuse(place, None, f"larger than {MAX_FILE_BYTES} bytes")
                elif name in found:
                    collector.refuse(place, None, "a second file of this name; the first is kept")
                else:
                    file = archive.extractfile(member)
                    found[name] = (place, file.read() if file else b"")
    except ImportStopped:
        raise
    except Refused as refusal:
        collector.refuse(Place(collector.path), None, str(refusal))
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        collector.refuse(Place(collector.path), None, f"the archive is damaged: {error}")
    for _, (place, content) in sorted(found.items()):
        read_file(content, place, collector)
    _say_if_empty(sorted(found), collector)


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members, until there are too many."""
    for number, member in enumerate(archive, start=1):
        if number > MAX_MEMBERS:
            raise Refused(f"more than {MAX_MEMBERS} members; the rest is not read")
        yield member


def read_file(data: bytes, place: Place, collector: Collector) -> None:
    """One task file into the collector, or the reason why not."""
    fields: dict[str, Json] = {}
    try:
        split = _split(text(data))
        if split is None:
            collector.refuse(place, None, "no front matter: no task file", fault=False)
            return
        fields = _load(split[0])
        task = _task(fields, split[1], place, collector)
    except Refused as refusal:
        collector.refuse(place, fields.get("id"), str(refusal))
        return
    collector.add(task)


def _task(fields: dict[str, Json], body: str, place: Place, to: Collector) -> Task:
    work_id = checked_id(fields.get("id"))
    title = fields.get("name") or fields.get("title")
    made = payload(title, body, fields)
    foreign = fields.get("status")
    if foreign is not None and not isinstance(foreign, str):
        raise Refused(f"status {quoted(foreign)} is no word")
    outcome: Outcome = outcome_of(foreign) if foreign else "submit"
    reason = f"foreign status {quoted(foreign)}" if outcome == "hold" else None
    evidence: dict[str, Json] = {"format": "frontmatter", "status": foreign}
    assignee = fields.get("assignee") or fields.get("owner")
    if foreign and fold(foreign) in CLAIMED:
        evidence["claim"] = {"status": foreign, "holder": assignee}
        to.note("noted", place, work_id, "claimed elsewhere: kept as evidence, no lease")
    rank, problem = _rank(fields.get("priority"))
    evidence["priority"] = fields.get("priority")
    if problem:
        to.note("noted", place, work_id, problem)
    after, problem = _after(fields)
    if problem:
        outcome = to.unreadable_edge(place, work_id, problem, outcome)
        reason = reason or problem
    time = instant(next((fields[key] for key in _TIMES if fields.get(key)), None))
    if time.problem:
        to.note("noted", place, work_id, time.problem)
    return Task(
        work_id=work_id,
        payload=made,
        rank=rank,
        outcome=outcome,
        place=place,
        hold_owner=label(assignee) or HOLD_OWNER if outcome == "hold" else None,
        hold_reason=reason if outcome == "hold" else None,
        after=after,
        requested_at=time.utc,
        requested_at_original=time.original,
        group_label=next((name for key in _GROUPS if (name := label(fields.get(key)))), None),
        evidence=evidence,
    )


def _rank(priority: Json) -> tuple[int, str | None]:
    if priority is None:
        return DEFAULT_RANK, None
    rank = rank_of(priority) if isinstance(priority, str) else None
    if rank is None:
        return DEFAULT_RANK, f"unknown priority {quoted(priority)}: rank {DEFAULT_RANK}"
    return rank, None


def _after(fields: dict[str, Json]) -> tuple[tuple[str, ...], str | None]:
    """Ids waited for, and why one could not be read."""
    after: dict[str, None] = {}
    problem: str | None = None
    for key in _EDGES:
        listed = fields.get(key)
        if isinstance(listed, str):
            listed = [part.strip() for part in listed.split(",") if part.strip()]
        if listed is None:
            continue
        if not isinstance(listed, list):
            problem = problem or f"dependency not readable: {key} is no list"
            continue
        for entry in listed:
            try:
                after[checked_id(entry, what=f"an id in {key}")] = None
            except Refused as refusal:
                problem = problem or f"dependency not readable: {refusal}"
    return tuple(after), problem


def _split(content: str) -> tuple[str, str] | None:
    """Front matter and body, or None where there is none. Raises Refused."""
    rows = content.split("\n")
    conflict = conflict_line(rows)
    if conflict is not None:
        raise Refused(f"conflict marker <<<<<<< in line {conflict}")
    if rows[0].rstrip() != "---":
        return None
    for at, row in enumerate(rows[1:], start=1):
        if row.rstrip() in ("---", "..."):
            head = "\n".join(rows[1:at])
            if len(head.encode()) > MAX_FRONT_MATTER_BYTES:
                raise Refused(f"front matter is larger than {MAX_FRONT_MATTER_BYTES} bytes")
            return head, "\n".join(rows[at + 1 :]).strip("\r\n")
    raise Refused("front matter is not closed")


class _Loader(yaml.SafeLoader):
    """SafeLoader that keeps scalars as text and refuses aliases, repeated keys and deep nesting."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, Any]]] = {}  # noqa: RUF012
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise self._refusal("aliases are not read")
        self.depth += 1
        if self.depth > MAX_YAML_DEPTH:
            raise self._refusal(f"nested deeper than {MAX_YAML_DEPTH} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def _refusal(self, reason: str) -> yaml.MarkedYAMLError:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        return yaml.MarkedYAMLError(problem=reason, problem_mark=mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {quoted(name)} occurs twice", problem_mark=key.start_mark
                )
            if name is not None:
                seen.add(name)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))


def _load(head: str) -> dict[str, Json]:
    """The front matter as a mapping. Raises Refused with the line in the file."""
    try:
        loaded = yaml.load(head, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 2})" if mark else ""
        raise Refused(f"invalid YAML: {error.problem}{where}") from None
    except yaml.YAMLError as error:
        raise Refused(f"invalid YAML: {str(error).splitlines()[0]}") from None
    except (ValueError, RecursionError, TypeError) as error:
        raise Refused(f"invalid YAML: {error}") from None
    if not isinstance(loaded, dict):
        raise Refused("front matter is no mapping")
    return loaded


def _task_files(path: Path, to: Collector) -> list[str]:
    """Names of task files below `path`, sorted; folders that cannot be opened are reported."""

    def unreadable(error: OSError) -> None:
        name = os.path.relpath(os.fspath(error.filename), path)
        to.refuse(Place(printable(name)), None, f"not readable: {error.strerror}")

    found: list[str] = []
    for folder, folders, files in os.walk(path, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        relative = Path(folder).relative_to(path)
        found += ((relative / name).as_posix() for name in files)
    return sorted(name for name in found if _is_task_file(name))


def _is_task_file(name: str) -> bool:
    parts = PurePosixPath(name).parts
    hidden = any(part.startswith(".") and part not in (".", "..") for part in parts)
    return not hidden and name.casefold().endswith(_SUFFIXES)


def _say_if_empty(names: list[str], to: Collector) -> None:
    if not names:
        to.note("noted", Place(to.path), None, "no task file found (*.md)")
