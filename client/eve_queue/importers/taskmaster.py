"""Taskmaster's `tasks.json`: {"tasks": […]} or {tag: {"tasks": […]}}.

Rules. Ids are numbers or strings of the format, unique within a tag: the work id is `3`, for a
subtask `3.1`, and in a file with tags `tag/3`. A task waits for its dependencies and for its
subtasks; a subtask waits for its own dependencies (a number names a sibling where there is one) and
for what its parent waits for. `high`, `medium`, `low` are the ranks 1, 2, 3. `done` is verified,
`cancelled` cancelled, `deferred` held, the rest submitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .model import HOLD_OWNER, Json, Place, Refused, Task, label, payload, quoted
from .model import work_id as checked_id
from .source import Collector, StrictJson, text
from .words import CLAIMED, DEFAULT_RANK, fold, outcome_of, rank_of


@dataclass(frozen=True, slots=True)
class _Level:
    """Where a task stands: ids of its list begin with `prefix`, of the whole tag with `root`."""

    root: str
    prefix: str
    siblings: frozenset[str]
    inherited: tuple[str, ...]
    group: str | None


def looks_like(value: Json) -> bool:
    """Whether a JSON value has the shape of a tasks.json."""
    return isinstance(value, dict) and bool(value) and any(True for _ in _lists(value))


def read(data: bytes, collector: Collector) -> None:
    """Every task and subtask into the collector."""
    place = Place(collector.path)
    try:
        value = StrictJson().whole(text(data))
    except Refused as refusal:
        collector.refuse(place, None, str(refusal))
        return
    if not looks_like(value) or not isinstance(value, dict):
        collector.refuse(place, None, "no list of tasks")
        return
    for tag, listed in _lists(value):
        root = "" if tag is None else f"{tag}/"
        _read_list(listed, _Level(root, root, _ids(listed), (), tag), place, collector)


def _lists(value: dict[str, Json]) -> Iterator[tuple[str | None, list[Json]]]:
    plain = value.get("tasks")
    if isinstance(plain, list):
        yield None, plain
        return
    for tag, inner in value.items():
        listed = inner.get("tasks") if isinstance(inner, dict) else None
        if isinstance(listed, list):
            yield tag, listed


def _ids(listed: list[Json]) -> frozenset[str]:
    return frozenset(_ordered_ids(listed))


def _is_id(value: Json) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def _read_list(listed: list[Json], level: _Level, place: Place, to: Collector) -> None:
    for record in listed:
        name: Json = record.get("id") if isinstance(record, dict) else None
        try:
            work_id = checked_id(f"{level.prefix}{_plain(name, 'id')}")
            task, subtasks = _task(record, work_id, level, place, to)
        except Refused as refusal:
            to.refuse(place, name, str(refusal))
            continue
        to.add(task)
        prefix = f"{work_id}."
        below = _Level(level.root, prefix, _ids(subtasks), _own(task, prefix), level.group)
        _read_list(subtasks, below, place, to)


def _plain(value: Json, what: str) -> str:
    """An id of the format as text: a number here is an id, not a guess. Raises Refused."""
    if value is None or value == "":
        raise Refused(f"{what} is missing")
    if not _is_id(value):
        raise Refused(f"{what} {quoted(value)} is neither number nor string")
    return str(value)


def _own(task: Task, prefix: str) -> tuple[str, ...]:
    """What the task waits for besides its own subtasks."""
    return tuple(after for after in task.after if not after.startswith(prefix))


def _task(
    record: Json, work_id: str, level: _Level, place: Place, to: Collector
) -> tuple[Task, list[Json]]:
    if not isinstance(record, dict):
        raise Refused("a task is no object")
    listed = record.get("subtasks")
    subtasks = listed if isinstance(listed, list) else []
    made = payload(
        record.get("title"),
        record.get("description"),
        {
            key: value
            for key, value in record.items()
            if key not in ("title", "description", "subtasks")
        },
    )
    foreign = record.get("status")
    if foreign is not None and not isinstance(foreign, str):
        raise Refused(f"status {quoted(foreign)} is no word")
    outcome = outcome_of(foreign) if foreign else "submit"
    reason = f"foreign status {quoted(foreign)}" if outcome == "hold" else None
    evidence: dict[str, Json] = {"format": "taskmaster", "status": foreign}
    if foreign and fold(foreign) in CLAIMED:
        evidence["claim"] = {"status": foreign}
        to.note("noted", place, work_id, "claimed elsewhere: kept as evidence, no lease")
    priority = record.get("priority")
    rank = rank_of(priority) if isinstance(priority, str) else None
    evidence["priority"] = priority
    if priority is not None and rank is None:
        said = f"unknown priority {quoted(priority)}: rank {DEFAULT_RANK}"
        to.note("noted", place, work_id, said)
    after, problem = _after(record.get("dependencies"), level)
    if problem:
        outcome = to.unreadable_edge(place, work_id, problem, outcome)
        reason = reason or problem
    children = [f"{work_id}.{name}" for name in _ordered_ids(subtasks)]
    if children:
        to.note("noted", place, work_id, f"waits for its {len(children)} subtasks")
    return (
        Task(
            work_id=work_id,
            payload=made,
            rank=DEFAULT_RANK if rank is None else rank,
            outcome=outcome,
            place=place,
            hold_owner=HOLD_OWNER if outcome == "hold" else None,
            hold_reason=reason if outcome == "hold" else None,
            after=tuple(dict.fromkeys([*after, *children])),
            group_label=label(level.group),
            evidence=evidence,
        ),
        subtasks,
    )


def _ordered_ids(listed: list[Json]) -> list[str]:
    records = (record for record in listed if isinstance(record, dict))
    return [str(record["id"]) for record in records if _is_id(record.get("id"))]


def _after(listed: Json, level: _Level) -> tuple[list[str], str | None]:
    """Ids waited for, those of the parent first, and why one could not be read."""
    after = list(level.inherited)
    if listed is None:
        return after, None
    if not isinstance(listed, list):
        return after, "dependency not readable: dependencies is no list"
    problem: str | None = None
    for entry in listed:
        try:
            name = _plain(entry, "an id")
            start = level.prefix if name in level.siblings else level.root
            after.append(checked_id(f"{start}{name}"))
        except Refused as refusal:
            problem = problem or f"dependency not readable: {refusal}"
    return after, problem
