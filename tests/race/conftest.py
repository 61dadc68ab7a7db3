"""A queue for races, as a desk, and its verdict: whatever happened, the audit of it is clean."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.database import Database
from support.desk import Desk


@pytest.fixture
def desk(db: Database) -> Iterator[Desk]:
    desk = Desk(db, db.make_queue())
    yield desk
    if not desk.spoiled:
        audit = desk.audit()
        assert audit.clean, audit.faults
