"""A queue for races, as a desk, and its verdict: whatever happened, the audit of it is clean.

One database a file, so that a race costs no `create database`: each test has its queue "q", which
is renamed when the test is over. What a test counts, it counts by `desk.id`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.database import Database
from support.desk import Desk
from support.fleet import Fleet


@pytest.fixture(scope="module")
def db(fleet: Fleet) -> Iterator[Database]:
    with fleet.home().database() as database:
        yield database


@pytest.fixture
def desk(db: Database) -> Iterator[Desk]:
    desk = Desk(db, db.make_queue())
    yield desk
    db.clock.release()
    audit = desk.audit()
    db.rows("update eve.queue set name = %s where name = %s", [f"q{desk.id}", desk.queue])
    db.close()
    if not desk.spoiled:
        assert audit.clean, audit.faults
