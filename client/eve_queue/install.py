"""eve into a database: the extension where the server offers it, else this package's SQL."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Literal, TypeAlias

import psycopg
from psycopg.rows import tuple_row

Road: TypeAlias = Literal["extension", "plain"]


class NotPossible(Exception):
    """It cannot be installed this way; the message says why."""


def installed(connection: psycopg.Connection[Any]) -> bool:
    """Whether the database has it, by whatever road."""
    return bool(_value(connection, "select to_regprocedure('public.eve_contract()') is not null"))


def install(connection: psycopg.Connection[Any], road: Road | None = None) -> Road | None:
    """Install in one transaction; the connection must be in autocommit. None when it was there.

    Without a road: the extension where the server offers it, else plain SQL. Raises NotPossible, or
    what the server says, such as InsufficientPrivilege.
    """
    if installed(connection):
        return None
    offered = _value(
        connection, "select exists (select from pg_available_extensions where name = 'eve')"
    )
    if road == "extension" and not offered:
        raise NotPossible("the server does not offer the extension eve: use --plain")
    chosen: Road = road or ("extension" if offered else "plain")
    script = "create extension eve" if chosen == "extension" else plain_sql()
    connection.execute(script.encode())
    return chosen


def plain_sql() -> str:
    """The script for `psql -f`: one transaction. Raises NotPossible where it was not built."""
    script = files("eve_queue") / "eve.sql"
    if not script.is_file():
        raise NotPossible("this copy of the package has no eve.sql: run `make build`")
    return script.read_text(encoding="utf-8")


def _value(connection: psycopg.Connection[Any], query: bytes | str) -> Any:
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(query.encode() if isinstance(query, str) else query).fetchone()
        return row[0] if row else None
