"""A plan check finds what a search of everything finds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eve_plpython.plan import EDGES, ITEMS, plan_faults

Plan = list[dict[str, Any]]

NAMES = st.sampled_from("abcdef")
ENTRY = st.fixed_dictionaries(
    {"id": NAMES, "after": st.lists(NAMES, max_size=3)},
    optional={"seconds": st.integers(0, 9)},
)
PLANS = st.lists(ENTRY, max_size=6)


def answer(plan: object, known: list[str | None] | None = None) -> dict[str, Any]:
    found = json.loads(plan_faults(json.dumps(plan), known))
    assert isinstance(found, dict)
    return found


def merged(plan: Plan) -> dict[str, tuple[set[str], float]]:
    items: dict[str, tuple[set[str], float | None]] = {}
    for entry in plan:
        after, seconds = items.get(entry["id"], (set(), None))
        both = [s for s in (seconds, entry.get("seconds")) if s is not None]
        items[entry["id"]] = (after | set(entry["after"]), max(both, default=None))
    return {k: (after, 1 if s is None else s) for k, (after, s) in items.items()}


def chains(items: dict[str, tuple[set[str], float]], chain: list[str]) -> Iterator[list[str]]:
    """Every chain that goes on from this one, later items last; circles end where they close."""
    yield chain
    for name, (after, _) in items.items():
        if chain[-1] in after and name not in chain:
            yield from chains(items, [*chain, name])


@given(PLANS, st.sets(NAMES))
def test_as_a_search_of_all_chains(plan: Plan, known: set[str]) -> None:
    found = answer(plan, [*sorted(known)])
    items = merged(plan)
    assert found["items"] == len(plan)
    assert set(found["duplicates"]) == {
        e["id"] for e in plan if sum(o["id"] == e["id"] for o in plan) > 1
    }
    assert {name: set(who) for name, who in found["unknown"].items()} == {
        name: {k for k, (after, _) in items.items() if name in after}
        for after, _ in items.values()
        for name in after
        if name not in items and name not in known
    }
    every = [chain for name in items for chain in chains(items, [name])]
    circles = [c for c in every if c[-1] in items and c[-1] in items[c[0]][0]]
    assert bool(circles) == (found["cycle"] is not None)
    if circles:
        cycle = found["cycle"]
        assert cycle[0] == cycle[-1] == min(cycle)
        for before, name in pairwise(cycle):
            assert before in items[name][0]
        assert found["depth"] is found["waves"] is found["critical_path"] is None
        assert found["seconds"] is found["widths"] is None
        return

    def length(chain: list[str]) -> float:
        return sum(items[name][1] for name in chain)

    assert found["depth"] == found["waves"] == max(map(len, every), default=0)
    assert sum(found["widths"]) == len(items)
    assert found["seconds"] == max(map(length, every), default=0)
    assert length(found["critical_path"]) == found["seconds"]
    assert found["critical_path"] in every or found["critical_path"] == [] == plan


def test_equal_chains_are_told_apart_by_the_order_of_the_plan() -> None:
    plan = [{"id": "b"}, {"id": "a"}, {"id": "z", "after": ["b", "a"]}]
    assert answer(plan)["critical_path"] == ["b", "z"]
    assert answer(plan) == answer(plan)


@pytest.mark.parametrize(
    ("plan", "unit"),
    [
        ([], "items"),
        ([{"id": "a"}], "items"),
        ([{"id": "a", "seconds": 2}], "seconds"),
        ([{"id": "a", "seconds": 2}, {"id": "b", "seconds": None}], "mixed"),
    ],
)
def test_the_unit_of_the_length(plan: Plan, unit: str) -> None:
    assert answer(plan)["unit"] == unit


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (None, "the plan is not an array"),
        ({}, "the plan is not an array"),
        ([1], "item 0 of the plan is not an object"),
        ([{}], "id of item 0 of the plan is not a text"),
        ([{"id": ""}], "id of item 0 of the plan is empty or longer than 512 bytes"),
        ([{"id": "é" * 257}], "id of item 0 of the plan is empty or longer than 512 bytes"),
        ([{"id": "a\n"}], "id of item 0 of the plan has control characters"),
        ([{"id": "a", "after": "b"}], "after of item 0 of the plan is not an array"),
        ([{"id": "a", "after": [1]}], "a name in after of item 0 of the plan is not a text"),
        ([{"id": "a", "afer": []}], 'item 0 of the plan has an unknown field "afer"'),
        ([{"id": "a", "seconds": "1"}], "seconds of item 0 of the plan is not a number"),
        ([{"id": "a", "seconds": True}], "seconds of item 0 of the plan is not a number"),
        ([{"id": "a", "seconds": -1}], "seconds of item 0 of the plan is not between 0 and "),
        ([{"id": "a", "seconds": 10**400}], "seconds of item 0 of the plan is not between 0 and "),
        ([{"id": "a"}] * (ITEMS + 1), "the plan has more than 10000 items"),
        ([{"id": "a", "after": ["b"] * (EDGES + 1)}], "the plan names more than 100000 depend"),
    ],
)
def test_what_is_no_plan(plan: object, why: str) -> None:
    assert answer(plan)["malformed"].startswith(why)


@pytest.mark.parametrize("text", [None, "[" * 100_000 + "]" * 100_000, f"[{'9' * 5000}]"])
def test_what_cannot_be_read(text: str | None) -> None:
    assert list(json.loads(plan_faults(text, None))) == ["malformed"]


def test_a_long_chain_and_a_wide_wave() -> None:
    chain = [{"id": str(n), "after": [str(n - 1)] if n else []} for n in range(ITEMS)]
    found = answer(chain)
    assert (found["depth"], found["seconds"], len(found["critical_path"])) == (ITEMS, ITEMS, ITEMS)
    chain[0]["after"] = [str(ITEMS - 1)]
    assert len(answer(chain)["cycle"]) == ITEMS + 1
    wide = answer([{"id": str(n)} for n in range(ITEMS)])
    assert (wide["depth"], wide["widths"]) == (1, [ITEMS])
