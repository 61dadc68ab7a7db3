"""The contract's sizes: 1,000 and 1,000,000 ready; 100,000 taken, unvacuumed, snapshot held."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support.database import Database
from support.desk import Desk
from support.flat import Flat, grown
from support.fleet import Fleet
from support.race import begin, scaled

Tell = Callable[..., None]
BACKLOG, TAKEN, PARTS = 1_000_000, 100_000, 4
MOST = 2.0  # a B-tree that became a level deeper is read a page more, at each look


@pytest.fixture(scope="module")
def db(fleet: Fleet) -> Iterator[Database]:
    with fleet.home().database(shipped=True) as database:
        yield database


def test_what_an_acquisition_reads_does_not_grow(db: Database, tell: Tell) -> None:
    flat = Flat(Desk(db, db.make_queue()))
    flat.load(1000)
    flat.take(20, classes="'{default}'")
    small = flat.measured()
    tell("flat", ready=1000, buffers=small)
    flat.load(scaled(BACKLOG))
    large = flat.measured()
    tell("flat", ready=scaled(BACKLOG), buffers=large, ratio=grown(small, large))
    assert max(grown(small, large).values()) <= MOST
    reader = db.connect("postgres")
    begin(reader, "repeatable read")
    reader.execute("select count(*) from eve.queue")
    for classes in ("'{default}'", "null"):
        for part in range(PARTS):
            flat.take(scaled(TAKEN) // PARTS, classes=classes)
            found = flat.measured()
            taken = (part + 1) * scaled(TAKEN) // PARTS
            ratio = grown(large, found)
            tell("flat", taken=taken, classes=classes, buffers=found, ratio=ratio)
            assert max(ratio.values()) <= MOST
    reader.execute("rollback")
