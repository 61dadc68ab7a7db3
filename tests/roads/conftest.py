"""Databases installed by each road, once a server and test session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.cluster import Cluster
from support.roads import ROADS

Installed = Callable[[str], str]
_made: set[tuple[str, str]] = set()


@pytest.fixture
def installed(cluster: Cluster) -> Installed:
    """`installed("sqitch")` names a database that this road made; copy it before changing it."""

    def make(road: str) -> str:
        database = f"road_{road}"
        if (cluster.dsn(), road) not in _made:
            cluster.create(database)
            ROADS[road](cluster, database)
            _made.add((cluster.dsn(), road))
        return database

    return make
