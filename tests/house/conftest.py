"""The catalogue that the laws are asked of: eve and eve_plpython as shipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from support import servers
from support.cluster import running
from support.database import Database
from support.fleet import Fleet, speaks_python
from support.roads import PLPYTHON, by_plain, plain_script, psql


@pytest.fixture(scope="module")
def shipped(fleet: Fleet) -> Iterator[Database]:
    with fleet.speaking().database(shipped=True) as database:
        database.rows("create extension eve_plpython cascade")
        yield database


@pytest.fixture
def checked(fleet: Fleet) -> Iterator[Database]:
    """On a server that has plpgsql_check: one of this run, else Debian's."""
    for server in fleet.servers:
        if (server.sharedir / "extension/plpgsql_check.control").exists():
            with fleet.home(server).database(shipped=True) as database:
                if speaks_python(fleet.home(server)):
                    database.rows("create extension eve_plpython cascade")
                yield database
            return
    with running(servers.find(15)) as cluster:
        cluster.create("checked")
        by_plain(cluster, "checked")
        cluster.load("checked", "create extension plpython3u")
        psql(cluster, "checked", plain_script(PLPYTHON))
        with closing(Database(cluster, "checked")) as database:
            yield database
