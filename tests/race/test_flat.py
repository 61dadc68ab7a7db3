"""What an acquisition reads does not grow: with the backlog, with what was taken, nor unvacuumed.

The sizes of the contract (1,000,000 ready, 100,000 taken) are those of tests/bench/test_flat.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.database import Database
from support.desk import Desk
from support.flat import CALLS, Flat, grown
from support.fleet import Fleet
from support.race import begin, scaled

MOST = 1.5  # times the buffers that the same call read of a small, fresh queue


@pytest.fixture(scope="module")
def db(fleet: Fleet) -> Iterator[Database]:
    with fleet.home().database(shipped=True) as database:
        yield database


@pytest.fixture(scope="module")
def flat(db: Database) -> Flat:
    """A small backlog."""
    flat = Flat(Desk(db, db.make_queue()))
    flat.load(1000)
    return flat


@pytest.fixture(scope="module")
def small(flat: Flat) -> dict[str, int]:
    flat.take(20, classes="'{default}'")
    return flat.measured()


def test_buffers_do_not_grow_with_the_backlog(flat: Flat, small: dict[str, int]) -> None:
    flat.load(scaled(15_000))
    found = grown(small, flat.measured())
    assert max(found.values()) <= MOST, (small, found)


@pytest.mark.parametrize("classes", ["'{default}'", "null"], ids=["one class", "all"])
def test_buffers_do_not_grow_with_what_was_taken_under_a_held_snapshot(
    flat: Flat, small: dict[str, int], classes: str
) -> None:
    reader = flat.desk.db.connect("postgres")
    begin(reader, "repeatable read")
    reader.execute("select count(*) from eve.ready")
    flat.take(scaled(3000), classes=classes)
    found = grown(small, flat.measured())
    assert set(found) == set(CALLS)
    assert max(found.values()) <= MOST, (small, found)
    assert found["nothing ready"] <= 1.35, (small, found)
    reader.execute("rollback")


def test_the_fast_load_is_what_submissions_would_have_made(flat: Flat) -> None:
    audit = flat.desk.audit()
    assert audit.clean, audit.faults
    assert audit.items > scaled(15_000)
