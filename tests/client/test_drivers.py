"""Every driver makes the same calls and reads the same answers: one life of one item each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row, namedtuple_row

from eve_queue import Call, Lease, calls
from eve_queue.client import execute
from eve_queue.client_async import execute as execute_async
from eve_queue.errors import StaleFence, from_driver
from support.database import Database

R = TypeVar("R")


class Driver(Protocol):
    """Makes a call and commits it."""

    def __call__(self, call: Call[R], /) -> R: ...


Opened = Callable[[Database], "Any"]


@contextmanager
def with_psycopg(db: Database) -> Iterator[Driver]:
    with psycopg.connect(db.dsn("t_worker"), autocommit=True, row_factory=dict_row) as connection:
        yield lambda call: execute(connection, call)


@contextmanager
def with_psycopg_async(db: Database) -> Iterator[Driver]:
    async def make(call: Call[R]) -> R:
        async with await psycopg.AsyncConnection.connect(db.dsn("t_worker")) as connection:
            return await execute_async(connection, call)

    yield lambda call: asyncio.run(make(call))


@contextmanager
def with_cursor(db: Database) -> Iterator[Driver]:
    """As Django hands out cursors: pyformat, rows of whatever shape, jsonb as it comes."""
    with psycopg.connect(
        db.dsn("t_worker"), autocommit=True, row_factory=namedtuple_row
    ) as connection:

        def make(call: Call[R]) -> R:
            with connection.cursor() as cursor:
                cursor.execute(*call.pyformat())
                return call.result(cursor.fetchall())

        yield make


@contextmanager
def with_sqlalchemy(db: Database) -> Iterator[Driver]:
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(db.dsn("t_worker"))
    )

    def make(call: Call[R]) -> R:
        with engine.begin() as connection:
            query, values = call.named()
            return call.result(list(connection.execute(sqlalchemy.text(query), values)))

    yield make
    engine.dispose()


@contextmanager
def with_asyncpg(db: Database) -> Iterator[Driver]:
    async def make(call: Call[R]) -> R:
        connection = await asyncpg.connect(db.uri("t_worker"))
        try:
            query, values = call.numeric()
            return call.result(await connection.fetch(query, *values))
        finally:
            await connection.close()

    yield lambda call: asyncio.run(make(call))


DRIVERS = [with_psycopg, with_psycopg_async, with_cursor, with_sqlalchemy, with_asyncpg]


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda made: made.__name__.removeprefix("with_"))
def test_one_life_of_an_item(
    db: Database, make_queue: Callable[..., str], driver: Callable[[Database], Any]
) -> None:
    make_queue()
    db.call("t_operator", "eve_grant_access", queue="q", role="t_worker", capability="producer")
    db.rows("grant eve_producer to t_worker")
    try:
        life(db, driver)
    finally:
        db.rows("revoke eve_producer from t_worker")


def life(db: Database, driver: Callable[[Database], Any]) -> None:
    noon = datetime(2031, 6, 1, 12, tzinfo=UTC)
    payload = {"to": "ada", "n": 2**40, "text": "é\n\"'", "none": None, "list": [1, {"a": []}]}
    with driver(db) as make:
        told = make(
            calls.submit(
                "q",
                payload,
                work_id="a:1 % :b",
                deadline=noon,
                minimum_completion_margin="90 s",
                expected_effects=["one", "two"],
                dependency_revisions={"a": 1},
                must_admit=True,
                idempotency_key="k",
            )
        )
        assert (told.decision, told.work_id, told.replayed) == ("ADMIT", "a:1 % :b", False)
        assert told.evidence["policy_revision"] == 1
        (job,) = make(calls.acquire("q", "w", classes=["default"], ttl=timedelta(seconds=120)))
        assert (job.granted, job.payload, job.deadline) == (True, payload, noon)
        assert job.item is not None
        assert job.token is not None
        lease = Lease(job.item, job.token)
        assert job.lease == str(lease)
        child = make(calls.submit("q", [1], under=lease, after=["a:1 % :b"]))
        assert (child.decision, child.reason) == ("HOLD", "dependency_not_ready")
        kept = make(calls.renew("q", *lease, progress={"done": 1}, checkpoint=[1, 2]))
        assert kept.expires_at.tzinfo is UTC
        with pytest.raises(Exception, match="fencing token") as caught:
            make(calls.complete("q", job.item, job.token + 1))
        assert isinstance(from_driver(caught.value), StaleFence)
        (finish, following) = make(
            calls.turn("q", "w", items=[job.item], tokens=[job.token], results=[{"ok": True}])
        )
        assert (finish.part, finish.phase, finish.missing) == ("finish", "verified", ())
        assert (following.part, following.item, following.payload) == ("acquire", child.item, [1])
        read = make(calls.item("q", work_id="a:1 % :b"))
        assert (read.status, read.result, read.checkpoint) == ("done", {"ok": True}, [1, 2])
        assert read.intent["expected_effects"] == ["one", "two"]
        assert make(calls.contract())["name"] == "eve.queue-semantics.v1"
