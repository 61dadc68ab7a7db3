"""A plan before it is submitted: what is missing, what goes round in a circle, what takes longest.

A plan is a JSON array of {"id": text, "after": [ids], "seconds": number}; the last two may lack.
"""

from __future__ import annotations

import json
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

ITEMS = 10_000  # items of a plan
EDGES = 100_000  # names after which items come, all in all
NAME_BYTES = 512  # of a work_id
SECONDS = 1_000_000_000  # of an item
WORDS = {"id", "after", "seconds"}


class Malformed(ValueError):
    """The document is no plan: the sentence that says why."""


class Item(NamedTuple):
    """One item; when an id is there twice, what its items say together."""

    after: dict[str, None]  # a set that keeps the order of the plan
    seconds: float | None


class Order(NamedTuple):
    """What an acyclic plan comes to."""

    depth: int
    widths: list[int]
    critical_path: list[str]
    seconds: float


def name_of(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise Malformed(f"{what} is not a text")
    if not 1 <= len(value.encode()) <= NAME_BYTES:
        raise Malformed(f"{what} is empty or longer than {NAME_BYTES} bytes")
    if any(ord(c) < 32 or 127 <= ord(c) < 160 for c in value):
        raise Malformed(f"{what} has control characters")
    return value


def seconds_of(value: object, what: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"{what} is not a number")
    if not 0 <= value <= SECONDS:
        raise Malformed(f"{what} is not between 0 and {SECONDS}")
    return float(value)


def read(text: str | None) -> tuple[dict[str, Item], list[str], int]:
    """The items by id in the order of the plan, the ids that are there twice, the items in all."""
    try:
        plan: Any = json.loads(text or "null")
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the plan cannot be read: {error}") from None
    if not isinstance(plan, list):
        raise Malformed("the plan is not an array")
    if len(plan) > ITEMS:
        raise Malformed(f"the plan has more than {ITEMS} items")
    items: dict[str, Item] = {}
    twice: dict[str, None] = {}
    edges = 0
    for n, entry in enumerate(plan):
        if not isinstance(entry, dict):
            raise Malformed(f"item {n} of the plan is not an object")
        if unknown := sorted(entry.keys() - WORDS):
            raise Malformed(f'item {n} of the plan has an unknown field "{unknown[0][:100]}"')
        name = name_of(entry.get("id"), f"id of item {n} of the plan")
        after = entry.get("after") or []
        if not isinstance(after, list):
            raise Malformed(f"after of item {n} of the plan is not an array")
        edges += len(after)
        if edges > EDGES:
            raise Malformed(f"the plan names more than {EDGES} dependencies")
        names = {name_of(each, f"a name in after of item {n} of the plan"): None for each in after}
        seconds = seconds_of(entry.get("seconds"), f"seconds of item {n} of the plan")
        if name in items:
            twice[name] = None
            first = items[name]
            names = first.after | names
            if seconds is None or (first.seconds is not None and first.seconds > seconds):
                seconds = first.seconds
        items[name] = Item(names, seconds)
    return items, list(twice), len(plan)


def turned(cycle: list[str]) -> list[str]:
    """The same circle, begun at its smallest id; the first comes last once more."""
    ring = cycle[:-1]
    at = ring.index(min(ring))
    ring = ring[at:] + ring[:at]
    return [*ring, ring[0]]


def order(items: dict[str, Item]) -> Order:
    """Depth, waves and critical path; raises CycleError when there is a circle."""
    graph = {name: [a for a in item.after if a in items] for name, item in items.items()}
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    depth: dict[str, int] = {}
    length: dict[str, float] = {}
    before: dict[str, str | None] = {}
    widths: list[int] = []
    while sorter.is_active():
        wave = sorter.get_ready()
        widths.append(len(wave))
        for name in wave:
            slowest = max(graph[name], key=lambda a: length[a], default=None)  # the first of equals
            before[name] = slowest
            seconds = items[name].seconds
            length[name] = (1.0 if seconds is None else seconds) + (
                length[slowest] if slowest is not None else 0.0
            )
            depth[name] = 1 + max((depth[a] for a in graph[name]), default=0)
        sorter.done(*wave)
    last = max(items, key=lambda name: length[name], default=None)
    path: list[str] = []
    at = last
    while at is not None:
        path.append(at)
        at = before[at]
    total = length[last] if last is not None else 0.0
    return Order(max(depth.values(), default=0), widths, path[::-1], total)


def plan_faults(plan: str | None, known: list[str | None] | None) -> str:
    """What is wrong with a plan [{id, after, seconds}], and what it comes to: items, unknown (name
    to the ids that name it; neither in the plan nor in known), duplicates, cycle (ids, each waits
    for the one before, the first comes last once more), depth (items of the longest chain), waves
    and their widths, critical_path (ids) and seconds, its length, where an item without seconds
    counts 1, and unit: seconds, items, or mixed. With a cycle, depth, waves, critical_path and
    seconds are null. An id that is there twice counts once, with all that its items come after.
    For a document that is no plan the answer is {malformed: why}; at most 10000 items with 100000
    names. Source: graphlib. Raises nothing, reads its arguments alone.
    """
    try:
        items, duplicates, count = read(plan)
    except Malformed as malformed:
        return json.dumps({"malformed": str(malformed)})
    there = items.keys() | set(known or [])
    unknown: dict[str, list[str]] = {}
    for name, item in items.items():
        for after in item.after:
            if after not in there:
                unknown.setdefault(after, []).append(name)
    cycle: list[str] | None = None
    found: Order | None = None
    try:
        found = order(items)
    except CycleError as error:
        cycle = turned(error.args[1])
    given = sum(item.seconds is not None for item in items.values())
    answer = {
        "items": count,
        "unknown": unknown,
        "duplicates": duplicates,
        "cycle": cycle,
        "depth": found and found.depth,
        "waves": found and len(found.widths),
        "widths": found and found.widths,
        "critical_path": found and found.critical_path,
        "seconds": found and found.seconds,
        "unit": "items" if given == 0 else "seconds" if given == len(items) else "mixed",
    }
    return json.dumps(answer)
