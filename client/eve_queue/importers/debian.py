"""Debian package stanzas (`Packages`): a package is a task, `Depends` and `Pre-Depends` its edges.

Rules. `required`, `important`, `standard`, `optional` are the ranks 0 … 3. Of alternatives `a | b`
the first that the set can supply is the edge: the real package of that name, else its provider.
Of several providers the most urgent is taken, then the first in the file. A package that itself
provides what it needs waits for nobody. Versions, architectures and `:any` do not choose: the edge
orders work and installs nothing; the field stays in the payload as written.

Virtual names have to be followed. Of a base system of 265 packages, dropping the needs that only a
provider meets leaves 757 edges and drains 29; following them gives all 759 edges and drains 28, as
its three true cycles demand. No need of that system is then left unmet, so its numbers do not say
what to do with one; the queue does, which never drops an edge: the edge to the first name is kept
and reported as dangling, the task waits, and a person may waive it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from debian.deb822 import Packages, PkgRelation

from .model import HOLD_OWNER, Json, Place, Refused, Task, label, payload, quoted
from .model import work_id as checked_id
from .source import Collector, lines

_RANKS = {"required": 0, "important": 1, "standard": 2, "optional": 3, "extra": 3}
_FIELD = re.compile(r"[!-,.-9;-~][!-9;-~]*:")
_RELATION_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9.+\-]*")
_NEEDS = ("Pre-Depends", "Depends")


@dataclass
class _Stanza:
    line: int
    text: list[str]
    problem: str | None = None


def read(data: bytes, collector: Collector) -> None:
    """Every stanza into the collector; names are resolved once all are known."""
    first: dict[str, Task] = {}
    found: list[tuple[Task, list[list[str]]]] = []
    providers: dict[str, list[str]] = {}
    for stanza in _stanzas(data):
        place = Place(collector.path, stanza.line)
        try:
            task, needs, provides = _task(_fields(stanza), place, collector)
        except Refused as refusal:
            collector.refuse(place, _name_if_any(stanza), str(refusal))
            continue
        found.append((task, needs))
        if first.setdefault(task.work_id, task) is task:
            for virtual in provides:
                providers.setdefault(virtual, []).append(task.work_id)
    at = {name: number for number, name in enumerate(first)}
    for names in providers.values():
        names.sort(key=lambda name: (first[name].rank, at[name]))
    for task, needs in found:
        after: dict[str, None] = {}
        for alternatives in needs:
            target = _supplier(task.work_id, alternatives, first, providers)
            if target is not None:
                after[target] = None
        collector.add(replace(task, after=tuple(after)))


def _supplier(
    name: str, alternatives: list[str], first: dict[str, Task], providers: dict[str, list[str]]
) -> str | None:
    """The package that meets a need, the first name where none does, None where `name` meets it."""
    for wanted in alternatives:
        if wanted in first:
            return wanted
        supply = providers.get(wanted)
        if supply:
            return None if name in supply else supply[0]
    return alternatives[0]


def _task(fields: Packages, place: Place, to: Collector) -> tuple[Task, list[list[str]], list[str]]:
    work_id = checked_id(fields.get("Package"), what="Package")
    original: dict[str, Json] = {
        key: str(value) for key, value in fields.items() if key != "Description"
    }
    title, _, body = str(fields.get("Description", "")).partition("\n")
    made = payload(title, body, original)
    word = fields.get("Priority")
    rank = _RANKS.get(word.casefold(), 3) if word else 3
    if not word or word.casefold() not in _RANKS:
        said = f"unknown Priority {quoted(word)}" if word else "no Priority"
        to.note("noted", place, work_id, f"{said}: taken as optional")
    needs: list[list[str]] = []
    problem: str | None = None
    for field in _NEEDS:
        groups, bad = _relation(fields, field)
        needs += groups
        problem = problem or bad
    provides, bad = _relation(fields, "Provides")
    if bad:
        to.note("noted", place, work_id, bad, fault=True)
    if problem:
        to.unreadable_edge(place, work_id, problem, "submit")
    return (
        Task(
            work_id=work_id,
            payload=made,
            rank=rank,
            outcome="hold" if problem else "submit",
            place=place,
            hold_owner=HOLD_OWNER if problem else None,
            hold_reason=problem,
            group_label=label(fields.get("Section")),
            evidence={"format": "debian", "priority": word, "version": fields.get("Version")},
        ),
        needs,
        [name for group in provides for name in group],
    )


def _relation(fields: Packages, field: str) -> tuple[list[list[str]], str | None]:
    """Names by alternative, and why part of the field could not be read."""
    raw = fields.get(field)
    if not raw or not raw.strip():
        return [], None
    groups: list[list[str]] = []
    problem: str | None = None
    for parsed in PkgRelation.parse_relations(" ".join(raw.split()).rstrip(" ,")):
        names = [relation["name"] for relation in parsed]
        bad = next((name for name in names if not _RELATION_NAME.fullmatch(name)), None)
        if bad is None:
            groups.append(names)
        else:
            problem = problem or f"{field} not readable: {quoted(bad)}"
    return groups, problem


def _fields(stanza: _Stanza) -> Packages:
    """The fields, parsed by python-debian; lines that it would pass over are refused."""
    if stanza.problem:
        raise Refused(stanza.problem)
    seen: set[str] = set()
    for number, line in enumerate(stanza.text, start=stanza.line):
        if line.startswith("#"):
            continue
        if line[0] in " \t":
            if not seen:
                raise Refused(f"line {number} continues no field")
            continue
        if not _FIELD.match(line):
            raise Refused(f"line {number} is no field")
        name = line.partition(":")[0].casefold()
        if name in seen:
            raise Refused(f"field {quoted(name)} occurs twice")
        seen.add(name)
    return Packages([line.encode() for line in stanza.text])


def _name_if_any(stanza: _Stanza) -> str | None:
    for line in stanza.text:
        if line.casefold().startswith("package:"):
            return line.partition(":")[2].strip() or None
    return None


def _stanzas(data: bytes) -> Iterator[_Stanza]:
    """Stanzas with the line they begin at; a line that cannot be used spoils its stanza."""
    current: _Stanza | None = None
    expected = 0
    for line in lines(data):
        if current is None or line.number != expected:
            if current:
                yield current
            current = _Stanza(line.number, [])
        current.text.append(line.text)
        current.problem = current.problem or line.problem
        expected = line.number + 1
    if current:
        yield current
