"""Waves, depth, cycles and waivers, against brute force on random graphs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from eve_queue.importers import (
    Backlog,
    Edge,
    Outcome,
    Place,
    Task,
    cycles,
    depth,
    stuck,
    waves,
)

NAMES = [chr(97 + at) for at in range(9)]


def backlog(edges: dict[str, list[str]], outcomes: dict[str, Outcome] | None = None) -> Backlog:
    tasks = tuple(
        Task(
            work_id=name,
            payload={},
            rank=2,
            outcome=(outcomes or {}).get(name, "submit"),
            place=Place("made"),
            after=tuple(after),
        )
        for name, after in edges.items()
    )
    return Backlog(name="made", format="beads", digest="", tasks=tasks, notes=())


graphs = st.fixed_dictionaries(
    {
        name: st.lists(st.sampled_from([*NAMES, "nowhere"]), unique=True, max_size=4)
        for name in NAMES
    }
)
outcomes = st.fixed_dictionaries(
    {name: st.sampled_from(["submit", "submit", "hold", "verified", "cancelled"]) for name in NAMES}
)


def drained(made: Backlog, waived: tuple[Edge, ...] = ()) -> set[str]:
    """What can be finished, by trying everything again until nothing moves."""
    done = {task.work_id for task in made.tasks if task.outcome == "verified"}
    before = -1
    while before != len(done):
        before = len(done)
        for task in made.tasks:
            needs = {a for a in task.after if Edge(task.work_id, a) not in waived}
            if task.outcome == "submit" and needs <= done:
                done.add(task.work_id)
    return done


@settings(deadline=None)
@given(graphs, outcomes)
def test_waves_reach_exactly_what_can_be_drained_and_never_early(
    edges: dict[str, list[str]], ends: dict[str, Outcome]
) -> None:
    made = backlog(edges, ends)
    finished = {name for name, end in ends.items() if end == "verified"}
    for wave in waves(made):
        for name in wave:
            assert set(edges[name]) <= finished
        finished |= set(wave)
    assert finished == drained(made)
    assert set(stuck(made)) == {n for n in NAMES if ends[n] == "submit"} - finished


@settings(deadline=None)
@given(graphs)
def test_waivers_open_every_knot_and_none_is_in_vain(edges: dict[str, list[str]]) -> None:
    known = {name: [a for a in after if a != "nowhere"] for name, after in edges.items()}
    made = backlog(known)
    found = cycles(made)
    waived = tuple(edge for cycle in found for edge in cycle.waive)
    assert drained(made, waived) == set(NAMES)
    for edge in waived:
        without = tuple(other for other in waived if other != edge)
        assert drained(made, without) != set(NAMES)
    for cycle in found:
        steps = zip(cycle.path, (*cycle.path[1:], cycle.path[0]), strict=True)
        assert all(after in known[name] for name, after in steps)
        assert set(cycle.path) <= set(cycle.members)


@settings(deadline=None)
@given(graphs)
def test_members_of_a_knot_reach_each_other_and_knots_are_apart(
    edges: dict[str, list[str]],
) -> None:
    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(edges[start])
        while todo:
            name = todo.pop()
            if name in edges and name not in seen:
                seen.add(name)
                todo += edges[name]
        return seen

    reachable = {name: reach(name) for name in NAMES}
    knots = {
        frozenset(o for o in NAMES if o in reachable[name] and name in reachable[o])
        for name in NAMES
        if name in reachable[name]
    }
    assert {frozenset(cycle.members) for cycle in cycles(backlog(edges))} == knots


def test_the_foundation_goes_first() -> None:
    made = backlog({"base": ["lib"], "lib": ["base"], "x": ["base"], "y": ["base"], "z": ["lib"]})
    (cycle,) = cycles(made)
    assert cycle.path == ("base", "lib")
    assert cycle.waive == (Edge("base", "lib"),)


def test_a_single_edge_is_found_where_one_is_enough() -> None:
    made = backlog({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["a", "b"]})
    (cycle,) = cycles(made)
    assert len(cycle.waive) == 1


def test_finished_and_cancelled_work_makes_no_knot() -> None:
    edges = {"a": ["b"], "b": ["a"]}
    assert cycles(backlog(edges, {"b": "verified"})) == ()
    assert cycles(backlog(edges, {"b": "cancelled"})) == ()
    assert len(cycles(backlog(edges, {"b": "hold"}))) == 1


def test_long_chains_and_rings_need_no_recursion() -> None:
    size = 20_000
    chain = {str(n): [str(n - 1)] if n else [] for n in range(size)}
    assert depth(backlog(chain)) == size
    ring = chain | {"0": [str(size - 1)]}
    (cycle,) = cycles(backlog(ring))
    assert len(cycle.members) == size
    assert sum(map(len, waves(backlog(ring), cycle.waive))) == size


def test_a_dense_knot_is_judged_in_time() -> None:
    size = 150
    everyone = [str(n) for n in range(size)]
    made = backlog({name: [o for o in everyone if o != name] for name in everyone})
    (cycle,) = cycles(made)
    assert len(cycle.waive) == size * (size - 1) // 2
    assert sum(map(len, waves(made, set(cycle.waive)))) == size
