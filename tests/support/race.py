"""Many callers at once: isolation levels, and rushes of threads that a seed steers.

Deterministic races use `session` of conftest and its waitpoints. A rush is for the interleavings
nobody thought of: each runner does a fixed number of steps, with the generator it is given.
`EVE_SEED` repeats a rush (the seed is printed when one fails), `EVE_SCALE` multiplies its steps.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from support.database import Connection, Row, call
from support.session import Session

LEVELS = ("read committed", "repeatable read", "serializable")
ABOVE = LEVELS[1:]
SCALE = float(os.environ.get("EVE_SCALE", "1"))
RETRY = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)

Runner = Callable[[random.Random], None]


def scaled(number: int) -> int:
    return max(1, round(number * SCALE))


def seed() -> int:
    return int(os.environ.get("EVE_SEED") or random.SystemRandom().getrandbits(32))


def rush(
    runners: Sequence[Runner], over: threading.Event | None = None, *, patience: float = 300.0
) -> None:
    """All runners at once, each in a thread, started together; the first error is raised.

    `over` is set when one of them fails, so that those who wait for it come to their end.
    """
    number = seed()
    errors: list[BaseException] = []
    gate = threading.Barrier(len(runners))

    def run(place: int, runner: Runner) -> None:
        try:
            gate.wait(patience)
            runner(random.Random(f"{number} {place}"))
        except BaseException as error:  # noqa: BLE001 - raised by the caller below
            errors.append(error)
            if over is not None:
                over.set()

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(runners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience)
    stuck = [thread for thread in threads if thread.is_alive()]
    if errors:
        raise AssertionError(f"EVE_SEED={number}") from errors[0]
    assert not stuck, f"EVE_SEED={number}: {len(stuck)} runners did not end"


def begin(connection: Connection, level: str) -> None:
    connection.execute(f"begin isolation level {level}")


def attempt(
    connection: Connection, level: str, body: Callable[[], Any], *, commit: bool = True
) -> tuple[bool, Any]:
    """One transaction: (True, value), or (False, error) where the server asks to repeat it."""
    begin(connection, level)
    try:
        value = body()
        connection.execute("commit" if commit else "rollback")
    except RETRY as error:
        connection.execute("rollback")
        return False, error
    except BaseException:
        if not connection.closed:
            connection.execute("rollback")
        raise
    return True, value


def only(connection: Connection, function: str, /, **arguments: object) -> Row:
    (row,) = call(connection, function, **arguments)
    return row


def refused(session: Session, function: str, /, **arguments: object) -> str:
    """The SQLSTATE of a call that raises."""
    try:
        session.call(function, **arguments)
    except psycopg.Error as error:
        return str(error.sqlstate)
    raise AssertionError(f"{function} was not refused")
