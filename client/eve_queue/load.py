"""A backlog into a queue, in one transaction: open work is submitted, finished work taken over.

    backlog = read("issues.jsonl")
    decision = propose_import(connection, "q", backlog)     a human accepts it
    print(load(connection, "q", backlog, decision=decision))

Work that another system finished needs an import decision that a human accepted, and a verifier.
Work that the source holds back waits for an approval of its own, so that a named act of a human
releases it. Every call is keyed by the digest of the backlog: loading twice changes nothing.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import psycopg
from psycopg.errors import DuplicateObject

from . import calls
from .answers import ActAnswer, AdmissionAnswer
from .client import execute
from .errors import TerminalStateNotOwned
from .importers import Backlog, Task, report
from .importers.model import shown

Happened: TypeAlias = Literal["admitted", "held", "verified", "cancelled", "refused"]
_KEY_BYTES = 512
_ROUTINE = "dependency_not_ready"  # a hold that its own backlog releases


class NotAccepted(Exception):
    """The backlog has finished work, and no human has accepted its import decision yet."""

    def __init__(self, queue: str, decision: int | None) -> None:
        super().__init__(
            f"a human has to accept import decision {decision} of queue {queue}"
            if decision is not None
            else f"the backlog has finished work: propose its import to queue {queue} first"
        )
        self.queue = queue
        self.decision = decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What became of one task. `reasons`: why it is held or refused, as codes of the queue."""

    task: Task
    happened: Happened
    item: int | None
    reasons: tuple[str, ...] = ()
    replayed: bool = False

    def __str__(self) -> str:
        why = ", ".join(self.reasons)
        return f"{shown(str(self.task.place))}  {shown(self.task.work_id)}  {self.happened}: {why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The report of a load: the source's own report, then what the queue made of it."""

    queue: str
    backlog: Backlog
    lines: tuple[Line, ...]
    decision: int | None

    def count(self, happened: Happened) -> int:
        return sum(line.happened == happened for line in self.lines)

    @property
    def replayed(self) -> int:
        """How many tasks were there already, under the same key."""
        return sum(line.replayed for line in self.lines)

    def items(self) -> dict[str, int]:
        """Item by work id, for what is stored."""
        return {line.task.work_id: line.item for line in self.lines if line.item is not None}

    def notable(self) -> list[Line]:
        """What was refused, and what waits for more than earlier work of the same backlog."""
        return [
            line
            for line in self.lines
            if line.happened == "refused" or any(reason != _ROUTINE for reason in line.reasons)
        ]

    def __str__(self) -> str:
        waits = Counter(reason for line in self.lines for reason in line.reasons)
        out = [report(self.backlog).rstrip("\n"), "", f"queue {shown(self.queue)}:"]
        happened = Counter(line.happened for line in self.lines)
        out += [f"  {word} {happened[word]}" for word in get_args(Happened) if happened[word]]
        if self.replayed:
            out.append(f"  of these there before, unchanged {self.replayed}")
        out += [f"  waits for {reason}: {count}" for reason, count in sorted(waits.items())]
        out += [f"  {line}" for line in self.notable()]
        return "\n".join(out) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """The same facts for machines."""
        return {
            "queue": self.queue,
            "decision": self.decision,
            "source": json.loads(report(self.backlog, as_json=True)),
            "counts": Counter(line.happened for line in self.lines),
            "replayed": self.replayed,
            "lines": [
                {
                    "path": line.task.place.path,
                    "line": line.task.place.line,
                    "id": line.task.work_id,
                    "item": line.item,
                    "happened": line.happened,
                    "reasons": list(line.reasons),
                    "replayed": line.replayed,
                }
                for line in self.lines
            ],
        }


def finished(backlog: Backlog) -> list[Task]:
    """The tasks that another system ended."""
    return [task for task in backlog.tasks if task.outcome in ("verified", "cancelled")]


def propose_import(connection: psycopg.Connection[Any], queue: str, backlog: Backlog) -> int:
    """Ask a human to accept the finished work of a backlog; the same decision when asked again."""
    told = execute(
        connection,
        calls.propose(
            queue,
            "import",
            subject={
                "name": backlog.name,
                "format": backlog.format,
                "digest": backlog.digest,
                "verified": backlog.count("verified"),
                "cancelled": backlog.count("cancelled"),
            },
            idempotency_key=_key(backlog, "import"),
        ),
    )
    if told.decision is None:
        raise TypeError("eve_propose answered no decision")
    return told.decision


def load(
    connection: psycopg.Connection[Any],
    queue: str,
    backlog: Backlog,
    *,
    class_: str = "default",
    decision: int | None = None,
) -> Loaded:
    """Load a backlog, all or nothing: in a transaction of its own, or as a part of the caller's.

    Raises NotAccepted where finished work has no accepted import decision, and as psycopg does
    where the caller is no producer or no verifier.
    """
    settled = finished(backlog)
    if settled and decision is None:
        raise NotAccepted(queue, None)
    lines: dict[str, Line] = {}
    with connection.transaction():
        for task in settled:
            lines[task.work_id] = _settle(connection, queue, backlog, task, class_, decision or 0)
        for task in ordered(backlog):
            lines[task.work_id] = _submit(connection, queue, backlog, task, class_)
        for work_id, line in lines.items():
            # What was unknown when it was submitted may be known by now.
            if line.item is not None and set(line.reasons) - {_ROUTINE}:
                lines[work_id] = replace(line, reasons=_waits(connection, queue, line.item))
    return Loaded(
        queue=queue,
        backlog=backlog,
        lines=tuple(lines[task.work_id] for task in backlog.tasks),
        decision=decision,
    )


def ordered(backlog: Backlog) -> list[Task]:
    """Open tasks in source order, but each after what it waits for, as far as that is possible."""
    place = {task.work_id: at for at, task in enumerate(backlog.tasks)}
    tasks = {t.work_id: t for t in backlog.tasks if t.outcome in ("submit", "hold")}
    waits = {name: {a for a in task.after if a in tasks} for name, task in tasks.items()}
    feeds: dict[str, list[str]] = {name: [] for name in tasks}
    for name, afters in waits.items():
        for after in afters:
            feeds[after].append(name)
    free = [place[name] for name, afters in waits.items() if not afters]
    heapq.heapify(free)
    found: list[Task] = []
    while waits:
        # In a knot there is none that waits for nothing: take the first of the source.
        name = backlog.tasks[heapq.heappop(free)].work_id if free else next(iter(waits))
        if name not in waits:
            continue
        del waits[name]
        found.append(tasks[name])
        for child in feeds[name]:
            if child in waits:
                waits[child].discard(name)
                if not waits[child]:
                    heapq.heappush(free, place[child])
    return found


def _settle(
    connection: psycopg.Connection[Any],
    queue: str,
    backlog: Backlog,
    task: Task,
    class_: str,
    decision: int,
) -> Line:
    phase: Happened = "verified" if task.outcome == "verified" else "cancelled"
    call = calls.settle_import(
        queue,
        decision,
        task.work_id,
        payload=task.payload,
        class_=class_,
        phase=phase,
        evidence={
            **task.evidence,
            "place": str(task.place),
            "requested_at": task.requested_at_original,
        },
        idempotency_key=_key(backlog, task.work_id),
    )
    try:
        with connection.transaction():
            told: ActAnswer = execute(connection, call)
    except DuplicateObject:
        return Line(task=task, happened="refused", item=None, reasons=("work_id_taken",))
    except TerminalStateNotOwned as refusal:
        if "decision" in refusal.detail:
            raise NotAccepted(queue, decision) from None
        raise
    return Line(task=task, happened=phase, item=told.item, replayed=bool(told.replayed))


def _submit(
    connection: psycopg.Connection[Any], queue: str, backlog: Backlog, task: Task, class_: str
) -> Line:
    told: AdmissionAnswer = execute(
        connection,
        calls.submit(
            queue,
            task.payload,
            class_=class_,
            work_id=task.work_id,
            after=task.after or None,
            priority_class=task.rank,
            requested_at=task.requested_at,
            group_label=task.group_label,
            decision=_approval(connection, queue, backlog, task),
            idempotency_key=_key(backlog, task.work_id),
        ),
    )
    happened: Happened = (
        "refused" if told.item is None else "held" if told.decision == "HOLD" else "admitted"
    )
    holds: list[Mapping[str, str]] = told.evidence.get("holds", [])
    reasons = tuple(hold["reason"] for hold in holds)
    if happened == "refused":
        reasons = (told.reason or told.decision,)
    return Line(
        task=task, happened=happened, item=told.item, reasons=reasons, replayed=told.replayed
    )


def _waits(connection: psycopg.Connection[Any], queue: str, item: int) -> tuple[str, ...]:
    """What an item waits for now."""
    return tuple(
        hold["reason"] for hold in execute(connection, calls.item(queue, item)).holds or ()
    )


def _approval(
    connection: psycopg.Connection[Any], queue: str, backlog: Backlog, task: Task
) -> int | None:
    """The decision that a task waits for which the source holds back."""
    if task.outcome != "hold":
        return None
    told = execute(
        connection,
        calls.propose(
            queue,
            "approval",
            work_id=task.work_id,
            subject={"owner": task.hold_owner, "reason": task.hold_reason},
            idempotency_key=_key(backlog, f"approval:{task.work_id}"),
        ),
    )
    return told.decision


def _key(backlog: Backlog, name: str) -> str:
    """The key of one call of an import; where the name is long, its digest."""
    key = f"import:{backlog.digest}:{name}"
    if len(key.encode()) <= _KEY_BYTES:
        return key
    return f"import:{backlog.digest}:{hashlib.sha256(name.encode()).hexdigest()}"
