"""Order and knots of a backlog: waves, stuck work, cycles, the edges to waive. Pure functions."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from .model import Backlog, Edge, Task

_SMALL = 400
_Graph = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Cycle:
    """Tasks that wait for each other.

    `members`: all that can reach one another, in source order. `path`: one shortest cycle, starting
    at the member that most work waits for. `waive`: edges without which no cycle is left here.
    """

    members: tuple[str, ...]
    path: tuple[str, ...]
    waive: tuple[Edge, ...]


def _live(backlog: Backlog, waived: Collection[Edge] = ()) -> dict[str, tuple[str, ...]]:
    """Unfinished tasks and what they still wait for: all but verified work and waived edges."""
    tasks = backlog.by_id()
    open_: dict[str, tuple[str, ...]] = {}
    for task in backlog.tasks:
        if task.outcome in ("submit", "hold"):
            open_[task.work_id] = tuple(
                after
                for after in task.after
                if not (after in tasks and tasks[after].outcome == "verified")
                and Edge(task.work_id, after) not in waived
            )
    return open_


def waves(backlog: Backlog, waived: Collection[Edge] = ()) -> tuple[tuple[str, ...], ...]:
    """Work ids that can start once all waves before are verified; by rank, then source order.

    Held and cancelled work, ids that exist nowhere and cycles let nothing past: see `stuck`.
    """
    tasks = backlog.by_id()
    order = {task.work_id: (task.rank, at) for at, task in enumerate(backlog.tasks)}
    sorter: TopologicalSorter[str] = TopologicalSorter(_live(backlog, waived))
    with suppress(CycleError):  # it still gives what no cycle blocks, `cycles` names the rest
        sorter.prepare()
    found: list[tuple[str, ...]] = []
    while True:
        ready = sorted(
            (name for name in sorter.get_ready() if _startable(tasks.get(name))),
            key=order.__getitem__,
        )
        if not ready:
            return tuple(found)
        found.append(tuple(ready))
        sorter.done(*ready)


def _startable(task: Task | None) -> bool:
    return task is not None and task.outcome == "submit"


def stuck(backlog: Backlog, waived: Collection[Edge] = ()) -> tuple[str, ...]:
    """Work ids of outcome "submit" that no wave reaches, in source order."""
    reached = {name for wave in waves(backlog, waived) for name in wave}
    return tuple(
        task.work_id
        for task in backlog.tasks
        if task.outcome == "submit" and task.work_id not in reached
    )


def depth(backlog: Backlog) -> int:
    """Tasks on the longest chain of edges, finished ones too, as far as no cycle is in the way."""
    tasks = backlog.by_id()
    opened = (
        replace(task, outcome="submit", after=tuple(a for a in task.after if a in tasks))
        for task in backlog.tasks
    )
    return len(waves(replace(backlog, tasks=tuple(opened))))


def cycles(backlog: Backlog) -> tuple[Cycle, ...]:
    """Knots among unfinished tasks, in source order of their first member.

    The edge to waive is the one that lets the foundation go first: of the edges that open the knot
    alone, the one whose waiting task most other unfinished tasks wait for. Where no single edge
    does, a small set found by the heuristic of Eades, Lin and Smyth (1993), each edge of it needed.
    """
    graph = _live(backlog)
    wanted = Counter(after for afters in graph.values() for after in afters)
    place = {name: at for at, name in enumerate(graph)}
    found = []
    for part in _components(graph):
        if len(part) == 1 and part[0] not in graph[part[0]]:
            continue
        members = tuple(sorted(part, key=place.__getitem__))
        inside = set(members)
        local = {name: tuple(a for a in graph[name] if a in inside) for name in members}
        first = min(members, key=lambda name: (-wanted[name], place[name]))
        found.append(Cycle(members, _shortest_cycle(local, first), _feedback(local, wanted, place)))
    return tuple(sorted(found, key=lambda cycle: place[cycle.members[0]]))


def _components(graph: _Graph) -> list[list[str]]:
    """Strongly connected components: Tarjan (1972) with its own stack, so depth is no limit."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            name, rest = work[-1]
            for after in rest:
                if after not in graph:
                    continue
                if after not in index:
                    index[after] = low[after] = len(index)
                    stack.append(after)
                    on_stack.add(after)
                    work.append((after, iter(graph[after])))
                    break
                if after in on_stack:
                    low[name] = min(low[name], index[after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    part: list[str] = []
                    while not part or part[-1] != name:
                        part.append(stack.pop())
                    on_stack.difference_update(part)
                    found.append(part)
    return found


def _shortest_cycle(graph: _Graph, start: str) -> tuple[str, ...]:
    """A shortest cycle through `start`, as the tasks on it; breadth first."""
    came: dict[str, str] = {}
    queue = deque([start])
    while queue:
        name = queue.popleft()
        for after in graph[name]:
            if after == start:
                path = [name]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return tuple(reversed(path))
            if after not in came:
                came[after] = name
                queue.append(after)
    raise AssertionError("a component of more than one task has a cycle through each of them")


def _feedback(
    graph: _Graph, wanted: Mapping[str, int], place: Mapping[str, int]
) -> tuple[Edge, ...]:
    """Edges without which this component has no cycle; a single one if that is enough."""
    edges = [Edge(name, after) for name, afters in graph.items() for after in afters]
    small = len(edges) <= _SMALL
    if small:
        path = _shortest_cycle(graph, next(iter(graph)))
        on_path = {Edge(*pair) for pair in pairwise((*path, path[0]))}
        singles = sorted(
            on_path, key=lambda edge: (-wanted[edge.work_id], place[edge.work_id], edge.after)
        )
        for edge in singles:
            if not _cyclic(graph, {edge}):
                return (edge,)
    rank = {name: at for at, name in enumerate(_sequence(graph, wanted, place))}
    chosen = [edge for edge in edges if rank[edge.after] >= rank[edge.work_id]]
    if small:
        for edge in reversed(chosen[:]):
            if not _cyclic(graph, set(chosen) - {edge}):
                chosen.remove(edge)
    return tuple(chosen)


def _cyclic(graph: _Graph, without: Collection[Edge]) -> bool:
    kept = {
        name: [after for after in afters if Edge(name, after) not in without]
        for name, afters in graph.items()
    }
    try:
        TopologicalSorter(kept).prepare()
    except CycleError:
        return True
    return False


def _sequence(graph: _Graph, wanted: Mapping[str, int], place: Mapping[str, int]) -> list[str]:
    """An order of work with few edges against it: tasks that wait for nothing first, tasks that
    nothing waits for last, and between them the one with most waiting for it and least to wait for.
    """
    waits = {name: set(afters) - {name} for name, afters in graph.items()}
    feeds: dict[str, set[str]] = {name: set() for name in graph}
    for name, afters in waits.items():
        for after in afters:
            feeds[after].add(name)
    score = {name: len(feeds[name]) - len(waits[name]) for name in graph}
    rest = iter(sorted(graph, key=lambda name: (-score[name], -wanted[name], place[name])))
    free = deque(name for name in graph if not waits[name])
    last = deque(name for name in graph if not feeds[name])
    front: list[str] = []
    back: list[str] = []
    while waits:
        if free:
            name, to = free.popleft(), front
        elif last:
            name, to = last.popleft(), back
        else:
            name, to = next(rest), front
        if name not in waits:
            continue
        to.append(name)
        for after in waits.pop(name):
            feeds[after].discard(name)
            if not feeds[after]:
                last.append(after)
        for waiting in feeds.pop(name):
            waits[waiting].discard(name)
            if not waits[waiting]:
                free.append(waiting)
    return [*front, *reversed(back)]
