"""Sessions that wait for each other: races are steered by lock waits, not by sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from support.database import Connection, Database, Row, call

T = TypeVar("T")
PATIENCE = 20.0  # seconds until a waitpoint that is never reached fails the test


class Session:
    """A connection with a thread of its own: start a statement here, another one elsewhere.

    a, b = stack.enter_context(session(db, "t_worker")), …
    a.execute("begin"); a.call("eve_acquire", queue="q", worker="a")
    pending = b.start_call("eve_acquire", queue="q", worker="b", item=1)
    b.until_waiting()               # b now waits for a lock
    a.execute("commit")
    answer = pending.result(20)
    """

    def __init__(self, database: Database, role: str) -> None:
        self.connection: Connection = database.connect(role)
        self.pid = self.connection.info.backend_pid
        self._watch = database.connect("postgres")
        self._thread = ThreadPoolExecutor(max_workers=1)

    def start(self, query: str, parameters: Any = None) -> Future[list[Row]]:
        """Send a statement and come back at once."""
        return self._thread.submit(self._execute, query, parameters)

    def execute(self, query: str, parameters: Any = None) -> list[Row]:
        """Run a statement to its end; `begin`, `commit` and `set` are statements too."""
        return self.start(query, parameters).result(PATIENCE)

    def start_call(self, function: str, /, **arguments: object) -> Future[list[Row]]:
        return self._thread.submit(call, self.connection, function, **arguments)

    def call(self, function: str, /, **arguments: object) -> Row:
        """One public function, its one row."""
        (row,) = self.start_call(function, **arguments).result(PATIENCE)
        return row

    def waiting(self) -> bool:
        """Whether its statement waits for a lock that another session holds."""
        query = "select cardinality(pg_blocking_pids(%s)) > 0"
        row = self._watch.execute(query, [self.pid]).fetchone()
        return bool(row and row[0])

    def until_waiting(self) -> None:
        until(self.waiting, "the session waits for a lock")

    def close(self) -> None:
        self.connection.cancel_safe(timeout=5)
        self._thread.shutdown(wait=True)
        self.connection.close()

    def _execute(self, query: str, parameters: Any) -> list[Row]:
        cursor = self.connection.execute(query, parameters)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def session(database: Database, role: str) -> Iterator[Session]:
    opened = Session(database, role)
    try:
        yield opened
    finally:
        opened.close()


def until(holds: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition that another thread or server process brings about."""
    end = time.monotonic() + patience
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience} s: {what}")
        time.sleep(0.005)
