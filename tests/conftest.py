"""Fixtures for every test that needs a database.

    db          a fresh database with eve, dropped after the test (about 50 ms)
    clock       its clock: set("2031-06-01 12:00Z"), advance(60), now(), release()
    make_queue  makes a queue in it: make_queue("q", replay_class="safe", …) → "q"
    session     a factory of connections with a thread each, for races: session("t_worker")
    home        the cluster and its template, when a test wants databases of its own:
                `with home.database() as db:`; session-wide use: `fleet.home()`
    cluster     the running server: dsn(), connect(), client("psql", …), stop("immediate")
    server      its programs: server.major, server.bindir

    db.call("t_worker", "eve_acquire", queue="q", worker="w1") → the one row, fields by name
    db.calls(…) → rows            db.rows / row / value(sql, params, role="postgres")
    db.connect("t_producer")      db.refused("stale_fence") → context manager

Login roles t_producer, t_worker, t_worker2, t_verifier, t_operator, t_human and t_auditor are each
a member of the matching eve_ role; t_nobody of none. Tests in tests/contract and tests/roads run on
each server of EVE_SERVERS, all others on the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import build
from support import servers
from support.cluster import Cluster
from support.database import Clock, Database, Home
from support.fleet import Fleet
from support.servers import Server
from support.session import Session
from support.session import session as open_session
from support.spread import Spread

HERE = Path(__file__).parent
EVERY_SERVER = {HERE / "contract", HERE / "roads"}


def pytest_configure(config: pytest.Config) -> None:
    """Builds eve once and puts it where each server of this run looks for extensions."""
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    if not (servers.ROOT / "sqitch.plan").exists():
        return
    try:
        for server in servers.wanted():
            if build.main(["install", "--sharedir", str(server.sharedir)]):
                raise pytest.UsageError("eve cannot be built: see above")
    except servers.NoServer as missing:
        raise pytest.UsageError(str(missing)) from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames and EVERY_SERVER & set(metafunc.definition.path.parents):
        found = servers.wanted()
        ids = [f"pg{server.major}" for server in found]
        metafunc.parametrize("server", found, ids=ids, indirect=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spread:
    """One worker runs all roads of a server, so that each road is laid once; see support.spread."""
    return Spread(config, log)


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    fleet = Fleet()
    yield fleet
    fleet.close()


@pytest.fixture
def server(request: pytest.FixtureRequest, fleet: Fleet) -> Server:
    chosen = getattr(request, "param", fleet.servers[0])
    assert isinstance(chosen, Server)
    return chosen


@pytest.fixture
def home(fleet: Fleet, server: Server) -> Home:
    return fleet.home(server)


@pytest.fixture
def cluster(home: Home) -> Cluster:
    return home.cluster


@pytest.fixture
def db(home: Home) -> Iterator[Database]:
    with home.database() as database:
        yield database


@pytest.fixture
def clock(db: Database) -> Clock:
    return db.clock


@pytest.fixture
def make_queue(db: Database) -> Callable[..., str]:
    return db.make_queue


@pytest.fixture
def session(db: Database) -> Iterator[Callable[[str], Session]]:
    """`a = session("t_worker")`; all are closed after the test, whatever they wait for."""
    with ExitStack() as stack:
        yield lambda role: stack.enter_context(open_session(db, role))
