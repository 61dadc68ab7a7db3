"""The catalogue that the laws are asked of: eve as shipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from support import servers
from support.cluster import running
from support.database import Database
from support.fleet import Fleet
from support.roads import by_plain


@pytest.fixture(scope="module")
def shipped(fleet: Fleet) -> Iterator[Database]:
    with fleet.home().database(shipped=True) as database:
        yield database


@pytest.fixture
def checked(fleet: Fleet) -> Iterator[Database]:
    """On a server that has plpgsql_check: one of this run, else Debian's."""
    for server in fleet.servers:
        if (server.sharedir / "extension/plpgsql_check.control").exists():
            with fleet.home(server).database(shipped=True) as database:
                yield database
            return
    with running(servers.find(15)) as cluster:
        cluster.create("checked")
        by_plain(cluster, "checked")
        with closing(Database(cluster, "checked")) as database:
            yield database
