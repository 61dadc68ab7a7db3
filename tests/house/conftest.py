"""The catalogue that the laws are asked of: eve as shipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.database import Database
from support.fleet import Fleet


@pytest.fixture(scope="module")
def shipped(fleet: Fleet) -> Iterator[Database]:
    with fleet.home().database(shipped=True) as database:
        yield database
