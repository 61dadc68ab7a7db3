"""The contract, on every server: a database per module, a queue per test, the audit after each.

shared    the module's database: its clock is real time again after each test
world     a queue with an item in every situation, for calls that are rolled back
desk      a fresh queue in it, class default replay_class safe; its audit must be clean at the end
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest

from support.database import Database, Home
from support.desk import Desk
from support.fleet import Fleet
from support.servers import Server
from support.world import World, build

NUMBER = itertools.count(1)


@pytest.fixture(scope="module")
def databases(fleet: Fleet) -> Iterator[Callable[[Server], Database]]:
    made: dict[Server, Database] = {}
    with ExitStack() as stack:

        def one(server: Server) -> Database:
            if server not in made:
                made[server] = stack.enter_context(fleet.home(server).database())
            return made[server]

        yield one


@pytest.fixture
def shared(
    databases: Callable[[Server], Database], server: Server, home: Home
) -> Iterator[Database]:
    assert home.cluster.server == server
    database = databases(server)
    yield database
    database.clock.release()


@pytest.fixture
def desk(shared: Database) -> Iterator[Desk]:
    desk = Desk(shared, shared.make_queue(f"q{next(NUMBER)}"))
    yield desk
    if not desk.spoiled:
        audit = desk.audit()
        assert audit.clean, audit.faults


@pytest.fixture(scope="module")
def worlds() -> dict[str, World]:
    return {}


@pytest.fixture
def world(shared: Database, worlds: dict[str, World]) -> Iterator[World]:
    """One world per module and server, at a clock that stands still; roll back what you do."""
    here = shared.dsn()  # names repeat from server to server
    if here not in worlds:
        worlds[here] = build(shared, "world")
    world = worlds[here]
    world.desk.clock.set(world.leases["held"].expires_at - timedelta(seconds=500))
    yield world
    audit = world.desk.audit()
    assert audit.clean, audit.faults
