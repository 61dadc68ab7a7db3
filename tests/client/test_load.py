"""A backlog into a queue: all or nothing, once, with every held and refused line named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from eve_queue import Queue
from eve_queue.importers import Backlog, Task, read
from eve_queue.importers.model import Place
from eve_queue.load import NotAccepted, load, ordered, propose_import
from support.database import Database

MakeQueue = Callable[..., str]
Importer = psycopg.Connection[Any]


@pytest.fixture
def importer(db: Database, make_queue: MakeQueue) -> Iterator[Importer]:
    """A login that is producer and verifier of queue q."""
    make_queue()
    db.rows("create role t_importer login in role eve_producer, eve_verifier")
    for capability in ("producer", "verifier"):
        db.call("t_operator", "eve_grant_access",
                queue="q", role="t_importer", capability=capability)  # fmt: skip
    with psycopg.connect(db.dsn("t_importer"), autocommit=True) as connection:
        yield connection
    db.rows("drop role t_importer")


def issue(name: str, status: str = "open", *, after: Sequence[str] = (), **more: Any) -> str:
    edges = [{"issue_id": name, "depends_on_id": a, "type": "blocks"} for a in after]
    record = {"id": name, "title": name.upper(), "status": status, "dependencies": edges, **more}
    return json.dumps(record)


@pytest.fixture
def backlog(tmp_path: Path) -> Callable[..., Backlog]:
    def make(*lines: str) -> Backlog:
        path = tmp_path / "issues.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return read(path, "beads")

    return make


def accepted(db: Database, importer: Importer, made: Backlog) -> int:
    decision = propose_import(importer, "q", made)
    db.call("t_human", "eve_accept", queue="q", decision=decision)
    return decision


def events(db: Database) -> int:
    return int(db.value("select count(*) from eve.ledger"))


def status(db: Database, work_id: str) -> str:
    return str(db.call("t_operator", "eve_item", queue="q", work_id=work_id).status)


def test_each_outcome_gets_its_call(
    db: Database, importer: Importer, backlog: Callable[..., Backlog]
) -> None:
    made = backlog(
        issue("done", "closed", closed_at="2026-11-30T08:00:00Z"),
        issue("gone", "tombstone"),
        issue("next", after=["done"], priority=0, created_at="2026-11-30T07:00:00+02:00"),
        issue("then", after=["next"], priority=4),
        issue("some day", "deferred"),
    )
    loaded = load(importer, "q", made, decision=accepted(db, importer, made))
    assert [(line.task.work_id, line.happened, line.reasons) for line in loaded.lines] == [
        ("done", "verified", ()),
        ("gone", "cancelled", ()),
        ("next", "admitted", ()),
        ("then", "held", ("dependency_not_ready",)),
        ("some day", "held", ("awaiting_decision",)),
    ]
    read_back = db.call("t_operator", "eve_item", queue="q", work_id="next")
    assert read_back.rank == 0
    assert read_back.payload["title"] == "NEXT"
    requested = datetime.fromisoformat(read_back.intent["requested_at"])
    assert requested == datetime(2026, 11, 30, 5, tzinfo=UTC)
    assert db.call("t_operator", "eve_item", queue="q", work_id="then").rank == 3
    (imported,) = db.calls("t_auditor", "eve_history", queue="q", work_id="done")
    assert imported.kind == "imported"
    assert imported.data["evidence"]["place"].endswith("issues.jsonl:1")


def test_loading_twice_changes_nothing(
    db: Database, importer: Importer, backlog: Callable[..., Backlog]
) -> None:
    made = backlog(issue("a", "closed"), issue("b", after=["a"]), issue("c", "deferred"))
    decision = accepted(db, importer, made)
    first = load(importer, "q", made, decision=decision)
    before = events(db)
    assert propose_import(importer, "q", made) == decision
    again = load(importer, "q", made, decision=decision)
    assert events(db) == before
    assert (first.replayed, again.replayed) == (0, 3)
    assert again.items() == first.items()
    assert [line.happened for line in again.lines] == [line.happened for line in first.lines]
    assert "of these there before, unchanged 3" in str(again)


def test_finished_work_waits_for_a_human(
    db: Database, importer: Importer, backlog: Callable[..., Backlog]
) -> None:
    made = backlog(issue("a", "closed"), issue("b"))
    with pytest.raises(NotAccepted, match="propose its import"):
        load(importer, "q", made)
    decision = propose_import(importer, "q", made)
    before = events(db)
    with pytest.raises(NotAccepted) as caught:
        load(importer, "q", made, decision=decision)
    assert caught.value.decision == decision
    assert events(db) == before
    db.call("t_human", "eve_decline", queue="q", decision=decision)
    with pytest.raises(NotAccepted):
        load(importer, "q", made, decision=decision)


def test_open_work_alone_needs_no_decision_and_no_verifier(
    db: Database, make_queue: MakeQueue, backlog: Callable[..., Backlog]
) -> None:
    make_queue()
    with psycopg.connect(db.dsn("t_producer"), autocommit=True) as producer:
        assert load(producer, "q", backlog(issue("a"))).count("admitted") == 1


def test_it_is_part_of_the_transaction_of_the_caller(
    db: Database, importer: Importer, backlog: Callable[..., Backlog]
) -> None:
    before = events(db)
    with importer.transaction(force_rollback=True):
        load(importer, "q", backlog(issue("a"), issue("b")))
    assert events(db) == before


def test_a_fault_in_the_middle_leaves_nothing_behind(
    db: Database, importer: Importer, backlog: Callable[..., Backlog]
) -> None:
    made = backlog(issue("a"), issue("b"))
    before = events(db)
    with pytest.raises(psycopg.errors.NoDataFound):
        load(importer, "q", made, class_="no such class")
    assert events(db) == before


def test_what_is_there_already_is_refused_by_name_and_spoils_nothing(
    db: Database, importer: Importer, backlog: Callable[..., Backlog]
) -> None:
    for taken in ("a", "b"):
        db.call("t_producer", "eve_submit", queue="q", work_id=taken)
    made = backlog(issue("a", "closed"), issue("b"), issue("c"))
    loaded = load(importer, "q", made, decision=accepted(db, importer, made))
    assert [(line.task.work_id, line.happened, line.reasons) for line in loaded.lines] == [
        ("a", "refused", ("work_id_taken",)),
        ("b", "refused", ("work_id_taken",)),
        ("c", "admitted", ()),
    ]
    assert [str(line).rpartition("/")[2] for line in loaded.notable()] == [
        "issues.jsonl:1  a  refused: work_id_taken",
        "issues.jsonl:2  b  refused: work_id_taken",
    ]


def test_work_held_back_is_released_by_the_human_who_accepts_it(
    db: Database, importer: Importer, backlog: Callable[..., Backlog]
) -> None:
    load(importer, "q", backlog(issue("a", "deferred"), issue("b", "pinned")))
    for work_id, verb, after in (("a", "eve_accept", "ready"), ("b", "eve_decline", "ended")):
        read_back = db.call("t_operator", "eve_item", queue="q", work_id=work_id)
        assert read_back.status == "needs_human"
        (hold,) = read_back.holds
        db.call("t_human", verb, queue="q", decision=int(hold["ref"]))
        assert status(db, work_id) == after


def test_knots_and_unknown_edges_are_named_and_open_by_waiver(
    db: Database, importer: Importer, backlog: Callable[..., Backlog]
) -> None:
    made = backlog(issue("a", after=["b"]), issue("b", after=["a"]), issue("c", after=["nowhere"]))
    loaded = load(importer, "q", made)
    reasons = {line.task.work_id: line.reasons for line in loaded.lines}
    assert reasons["a"] == ("dependency_cycle", "dependency_not_ready")
    assert reasons["c"] == ("unknown_dependency",)
    text = str(loaded)
    assert "waits for itself: a → b → a" in text
    assert 'waits for "nowhere"' in text
    assert "waits for unknown_dependency: 1" in text
    facts = loaded.as_dict()
    assert facts["lines"][2]["reasons"] == ["unknown_dependency"]
    assert facts["source"]["cycles"][0]["path"] == ["a", "b"]
    told = db.call("t_human", "eve_propose", queue="q", kind="waiver",
                   item=loaded.items()["a"], work_id="b")  # fmt: skip
    db.call("t_human", "eve_accept", queue="q", decision=told.decision)
    assert status(db, "a") == "ready"


def test_a_long_name_has_a_key(
    db: Database, importer: Importer, backlog: Callable[..., Backlog]
) -> None:
    made = backlog(issue("é" * 256), issue("é" * 255 + "e"), issue("é" * 255 + "x", "deferred"))
    assert load(importer, "q", made).count("admitted") == 2
    assert load(importer, "q", made).replayed == 3
    with Queue(importer, "q") as queue:
        assert queue.item(work_id="é" * 256).phase == "ready"
    assert db.call("t_auditor", "eve_audit", queue="q").clean


def task(name: str, after: Sequence[str]) -> Task:
    return Task(work_id=name, payload={}, rank=2, outcome="submit", place=Place("x"),
                after=tuple(after))  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(
    some.lists(some.integers(0, 12), unique=True).flatmap(
        lambda names: some.tuples(
            *(
                some.tuples(some.just(name), some.lists(some.integers(0, 14), unique=True))
                for name in names
            )
        )
    )
)
def test_work_comes_after_what_it_waits_for_and_nothing_is_dropped(
    edges: tuple[tuple[int, list[int]], ...],
) -> None:
    tasks = tuple(task(str(name), [str(after) for after in afters]) for name, afters in edges)
    made = Backlog(name="x", format="beads", digest="0", tasks=tasks, notes=())
    found = ordered(made)
    assert sorted(t.work_id for t in found) == sorted(t.work_id for t in tasks)
    place = {t.work_id: at for at, t in enumerate(found)}
    reach: dict[str, set[str]] = {}
    for name in place:  # what each waits for, at last
        seen: set[str] = set()
        pending = [name]
        while pending:
            for after in made.by_id()[pending.pop()].after:
                if after in place and after not in seen:
                    seen.add(after)
                    pending.append(after)
        reach[name] = seen
    for t in found:
        knotted = any(name in reach[name] for name in {t.work_id, *reach[t.work_id]})
        if not knotted:
            assert all(place[after] < place[t.work_id] for after in reach[t.work_id])
