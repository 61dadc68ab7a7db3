"""Debian stanzas: ranks, relations, alternatives, providers, cycles."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eve_queue.importers import Backlog, cycles, read, waves
from importers.made import Notes, Write

Stanzas = Callable[..., Backlog]


@pytest.fixture
def stanzas(write: Write) -> Stanzas:
    def make(*texts: str) -> Backlog:
        return read(write("set.packages", "\n\n".join(texts) + "\n"))

    return make


def package(name: str, priority: str = "optional", **fields: str) -> str:
    rows = [f"Package: {name}", f"Priority: {priority}"]
    return "\n".join(rows + [f"{key.replace('_', '-')}: {value}" for key, value in fields.items()])


@pytest.mark.parametrize(
    ("word", "rank"),
    [("required", 0), ("important", 1), ("standard", 2), ("optional", 3), ("extra", 3)],
)
def test_the_priority_words_are_the_ranks(stanzas: Stanzas, word: str, rank: int) -> None:
    backlog = stanzas(package("a", word, Section="tools", Version="1"))
    assert backlog.format == "debian"
    assert (backlog.tasks[0].rank, backlog.tasks[0].group_label) == (rank, "tools")
    assert backlog.notes == ()


def test_an_unknown_priority_is_optional_and_said(stanzas: Stanzas, notes: Notes) -> None:
    backlog = stanzas(package("a", "vital"), "Package: b\nSection: x")
    assert [task.rank for task in backlog.tasks] == [3, 3]
    assert [note.reason for note in notes(backlog, "noted")] == [
        'unknown Priority "vital": taken as optional',
        "no Priority: taken as optional",
    ]


def test_depends_and_pre_depends_are_edges_and_nothing_else(stanzas: Stanzas) -> None:
    backlog = stanzas(
        package(
            "a",
            Pre_Depends="b (>= 1.2)",
            Depends="c:any, b, d [amd64] <!nocheck>,\n e",
            Recommends="f",
            Suggests="g",
        ),
        *(package(name) for name in "bcdefg"),
    )
    assert backlog.tasks[0].after == ("b", "c", "d", "e")
    assert backlog.notes == ()


def test_of_alternatives_the_first_that_the_set_supplies(stanzas: Stanzas) -> None:
    backlog = stanzas(
        package("a", Depends="absent | virtual | c"),
        package("b", Depends="c | virtual"),
        package("c"),
        package("d", Provides="virtual (= 1), other"),
    )
    assert [task.after for task in backlog.tasks[:2]] == [("d",), ("c",)]
    assert backlog.notes == ()


def test_of_providers_the_most_urgent_then_the_first(stanzas: Stanzas) -> None:
    backlog = stanzas(
        package("a", Depends="shell"),
        package("late", "optional", Provides="shell"),
        package("first", "required", Provides="shell"),
        package("second", "required", Provides="shell"),
    )
    assert backlog.tasks[0].after == ("first",)


def test_a_real_package_wins_over_a_provider_of_its_name(stanzas: Stanzas) -> None:
    backlog = stanzas(
        package("a", Depends="b"), package("c", "required", Provides="b"), package("b")
    )
    assert backlog.tasks[0].after == ("b",)


def test_a_package_that_provides_what_it_needs_waits_for_nobody(stanzas: Stanzas) -> None:
    backlog = stanzas(package("a", Depends="v", Provides="v"), package("b", Provides="v"))
    assert backlog.tasks[0].after == ()


def test_what_nothing_supplies_is_kept_and_reported(stanzas: Stanzas, notes: Notes) -> None:
    backlog = stanzas(package("a", Depends="absent | also-absent"), package("b", Depends="a"))
    assert backlog.tasks[0].after == ("absent",)
    (note,) = notes(backlog, "dangling")
    assert (note.id, note.place.line) == ("a", 1)
    assert waves(backlog) == ()


def test_cycles_stop_what_waits_for_them_until_an_edge_is_waived(stanzas: Stanzas) -> None:
    backlog = stanzas(
        package("base", "required", Depends="runtime"),
        package("runtime", Depends="base"),
        package("tool", Depends="base"),
        package("extra", Depends="tool, base"),
        package("data"),
    )
    assert waves(backlog) == (("data",),)
    (cycle,) = cycles(backlog)
    assert cycle.members == ("base", "runtime")
    assert [tuple(edge) for edge in cycle.waive] == [("base", "runtime")]
    after = waves(backlog, cycle.waive)
    assert sum(map(len, after)) == 5
    assert after[0][0] == "base"


@pytest.mark.parametrize(
    ("stanza", "said", "name"),
    [
        ("Package: bad\nno field here", "line 5 is no field", "bad"),
        ("Package: bad\nPackage: worse", 'field "package" occurs twice', "bad"),
        ("Section: x\nPriority: required", "Package is missing", None),
        (" continues: nothing\nPackage: bad", "continues no field", "bad"),
        ("Package:\nSection: x", "Package is empty", None),
        ("<<<<<<< ours\nPackage: bad\n>>>>>>> theirs", "conflict marker", "bad"),
    ],
)
def test_bad_stanzas_are_named_and_the_others_are_read(
    stanzas: Stanzas, notes: Notes, stanza: str, said: str, name: str | None
) -> None:
    backlog = stanzas(package("a"), stanza, package("z"))
    assert [task.work_id for task in backlog.tasks] == ["a", "z"]
    (note,) = notes(backlog, "refused")
    assert (note.id, note.place.line) == (name, 4)
    assert said in note.reason


def test_a_relation_that_cannot_be_read_holds_the_package(stanzas: Stanzas, notes: Notes) -> None:
    backlog = stanzas(package("a", Depends="b, ${unresolved:Depends}"), package("b"))
    assert (backlog.tasks[0].outcome, backlog.tasks[0].after) == ("hold", ("b",))
    assert notes(backlog, "refused")[0].id == "a"


def test_two_versions_of_a_package_are_not_one_task(stanzas: Stanzas, notes: Notes) -> None:
    backlog = stanzas(package("a", Version="1"), package("a", Version="2"))
    assert [task.evidence["version"] for task in backlog.tasks] == ["1"]
    assert notes(backlog, "refused")[0].place.line == 5


def test_the_fields_stay_as_written(stanzas: Stanzas) -> None:
    backlog = stanzas(package("a", Depends="b (>= 1) | c", Description="short\n long text"))
    payload = backlog.tasks[0].payload
    assert (payload["title"], payload["body"]) == ("short", " long text")
    assert payload["original"] == {
        "Package": "a",
        "Priority": "optional",
        "Depends": "b (>= 1) | c",
    }
