"""Beads: an issue tracker's export, one JSON object a line (`issues.jsonl`).

Rules. `priority` n is rank min(n, 3), the number stays as evidence; a missing one is 0, as the
tracker itself reads it. Only dependencies of type `blocks` are edges. `open` and `blocked` are
submitted (whether work is blocked follows from its edges), `in_progress` and `hooked` too, with the
foreign claim as evidence; `deferred`, `pinned` and unknown words are held; `closed` is verified,
`tombstone` cancelled. The epic that a task is a child of is its group label.
"""

from __future__ import annotations

from collections import Counter

from .model import HOLD_OWNER, Json, Outcome, Place, Refused, Task, instant, label, payload, quoted
from .model import work_id as checked_id
from .source import Collector, StrictJson, lines

_OUTCOMES: dict[str, Outcome] = {
    "open": "submit",
    "blocked": "submit",
    "in_progress": "submit",
    "hooked": "submit",
    "deferred": "hold",
    "pinned": "hold",
    "closed": "verified",
    "tombstone": "cancelled",
}
_ALSO_BLOCKING = ("conditional-blocks", "waits-for")
_KEPT = ("issue_type", "assignee", "closed_at", "close_reason", "defer_until", "external_ref")


def read(data: bytes, collector: Collector) -> None:
    """Every line of a beads export into the collector, unusable ones as notes."""
    strict = StrictJson()
    relations: Counter[str] = Counter()
    for line in lines(data):
        place = Place(collector.path, line.number)
        if line.problem:
            collector.refuse(place, _id_if_any(line.text), line.problem)
            continue
        record: Json = None
        try:
            record = strict.whole(line.text)
            kind = record.get("_type", "issue") if isinstance(record, dict) else "issue"
            if kind != "issue":
                collector.note("noted", place, None, f"a record of type {quoted(kind)} is no work")
                continue
            task = _task(record, place, collector, relations)
        except Refused as refusal:
            found = record.get("id") if isinstance(record, dict) else _id_if_any(line.text)
            collector.refuse(place, found, str(refusal))
            continue
        collector.add(task)
    for name, number in sorted(relations.items()):
        reason = f"{number} dependencies of type {quoted(name)} are no edges; kept in the payload"
        collector.note("noted", Place(collector.path), None, reason)


def _task(record: Json, place: Place, to: Collector, relations: Counter[str]) -> Task:
    if not isinstance(record, dict):
        raise Refused("not a JSON object")
    work_id = checked_id(record.get("id"))
    made = payload(
        record.get("title"),
        record.get("description"),
        {key: value for key, value in record.items() if key not in ("title", "description")},
    )
    rank, priority = _rank(record.get("priority"))
    foreign = record.get("status")
    if foreign is None or foreign == "":
        foreign = "open"
    if not isinstance(foreign, str):
        raise Refused(f"status {quoted(foreign)} is no string")
    outcome = _OUTCOMES.get(foreign, "hold")
    evidence: dict[str, Json] = {"format": "beads", "status": foreign, "priority": priority}
    evidence |= {key: record[key] for key in _KEPT if record.get(key)}
    after, group, problem = _edges(record, work_id, place, to, relations)
    reason: str | None = None
    if outcome == "hold":
        until = record.get("defer_until")
        known = "" if foreign in _OUTCOMES else "unknown "
        reason = f"{known}foreign status {quoted(foreign)}"
        reason += f" until {quoted(until)}" if until else ""
    if problem:
        outcome = to.unreadable_edge(place, work_id, problem, outcome)
        reason = reason or problem
    if foreign in ("in_progress", "hooked"):
        evidence["claim"] = {"status": foreign, "holder": record.get("assignee")}
        who = f"by {quoted(record['assignee'])}" if record.get("assignee") else "by nobody named"
        to.note("noted", place, work_id, f"claimed elsewhere {who}: kept as evidence, no lease")
    if foreign == "blocked" and not after:
        said = 'foreign status "blocked", but no edge blocks it: submitted'
        to.note("noted", place, work_id, said)
    time = instant(record.get("created_at"))
    if time.problem:
        to.note("noted", place, work_id, time.problem)
    owner = label(record.get("assignee")) or label(record.get("owner")) or HOLD_OWNER
    return Task(
        work_id=work_id,
        payload=made,
        rank=rank,
        outcome=outcome,
        place=place,
        hold_owner=owner if outcome == "hold" else None,
        hold_reason=reason if outcome == "hold" else None,
        after=after,
        requested_at=time.utc,
        requested_at_original=time.original,
        group_label=group,
        evidence=evidence,
    )


def _rank(priority: Json) -> tuple[int, Json]:
    if priority is None:
        return 0, None
    if isinstance(priority, bool) or not isinstance(priority, int) or priority < 0:
        raise Refused(f"priority {quoted(priority)} is no whole number from 0")
    return min(priority, 3), priority


def _edges(
    record: dict[str, Json], work_id: str, place: Place, to: Collector, relations: Counter[str]
) -> tuple[tuple[str, ...], str | None, str | None]:
    """Blocking ids, the parent if there is one, and why an edge could not be read."""
    listed = record.get("dependencies")
    if listed is None:
        return (), None, None
    if not isinstance(listed, list):
        return (), None, "dependencies are no list"
    after: dict[str, None] = {}
    parents: dict[str, None] = {}
    problem: str | None = None
    for dependency in listed:
        try:
            target, kind = _dependency(dependency, work_id)
        except Refused as refusal:
            problem = problem or f"dependency not readable: {refusal}"
            continue
        if kind == "blocks":
            after[target] = None
            continue
        relations[kind] += 1
        if kind == "parent-child":
            parents[target] = None
        if kind in _ALSO_BLOCKING:
            reason = f"dependency of type {quoted(kind)} on {quoted(target)} is no edge here"
            to.note("noted", place, work_id, reason)
    return tuple(after), next(iter(parents)) if len(parents) == 1 else None, problem


def _dependency(dependency: Json, work_id: str) -> tuple[str, str]:
    """What is waited for, and the type of the dependency. Raises Refused."""
    if not isinstance(dependency, dict):
        raise Refused(f"{quoted(dependency)} is no object")
    if dependency.get("issue_id", work_id) != work_id:
        raise Refused(f"it belongs to {quoted(dependency['issue_id'])}")
    target = checked_id(dependency.get("depends_on_id"), what="depends_on_id")
    kind = dependency.get("type")
    if not isinstance(kind, str):
        raise Refused(f"the one on {quoted(target)} has no type")
    return target, kind


def _id_if_any(text: str) -> Json:
    """The id of a line that is refused anyway, for the report only."""
    try:
        found = StrictJson().whole(text)
    except Refused:
        return None
    return found.get("id") if isinstance(found, dict) else None
