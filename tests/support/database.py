"""A database with eve in it, for one test: roles to log in as, calls by name, a clock to own."""

from __future__ import annotations

import itertools
import keyword
import os
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, cast

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from support.cluster import Cluster

Row = Any  # a named tuple whose fields are the columns of the answer; "class" is `class_`
Connection = psycopg.Connection[Row]

LOGINS: Mapping[str, str | None] = {  # login → the eve role it is a member of
    "t_producer": "eve_producer",
    "t_worker": "eve_worker",
    "t_worker2": "eve_worker",
    "t_verifier": "eve_verifier",
    "t_operator": "eve_operator",
    "t_human": "eve_human",
    "t_auditor": "eve_auditor",
    "t_nobody": None,
}
CAPABILITIES = {role: role.removeprefix("eve_") for role in LOGINS.values() if role}

OWN_CLOCK = """
create table public.test_clock (instant timestamptz not null);
create unique index test_clock_one_row on public.test_clock ((true));
grant select on public.test_clock to public;
do $do$
begin
    execute (
        select pg_catalog.format($sql$
            create or replace function eve.now() returns timestamptz
            language plpgsql %s set search_path to pg_catalog, pg_temp
            as $$ begin
                return coalesce((select c.instant from public.test_clock c), clock_timestamp());
            end $$
        $sql$, case p.provolatile when 's' then 'stable' else 'volatile' end)
        from pg_catalog.pg_proc p where p.oid = 'eve.now()'::regprocedure
    );
end
$do$;
"""


@lru_cache(maxsize=512)
def row_of(columns: tuple[str, ...]) -> type[Row]:
    names = [f"{name}_" if keyword.iskeyword(name) else name for name in columns]
    return namedtuple("Row", names, rename=True)


def named_row(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], Row]:
    """A row factory: fields by name, a Python keyword with an underscore after it."""
    return cast(
        Callable[[Sequence[Any]], Row],
        row_of(tuple(c.name for c in cursor.description or []))._make,
    )


class Clock:
    """What `eve.now()` answers in this database: the real time until `set` or `advance`.

    A set clock stands still. Each change commits at once; a transaction at REPEATABLE READ goes on
    reading the instant of its snapshot.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self) -> datetime:
        return cast(datetime, self._database.value("select eve.now()"))

    def set(self, instant: datetime | str) -> datetime:
        """Stop the clock at this instant; text is read by PostgreSQL ('2031-06-01 12:00Z')."""
        return cast(
            datetime,
            self._database.value(
                "insert into public.test_clock values (%s::timestamptz)"
                " on conflict ((true)) do update set instant = excluded.instant returning instant",
                [instant],
            ),
        )

    def advance(self, seconds: float | timedelta) -> datetime:
        """Stop the clock so much later than it stands now (earlier when negative)."""
        step = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        return self.set(self.now() + step)

    def release(self) -> None:
        """Real time again."""
        self._database.value("delete from public.test_clock returning null")


class Refused(NamedTuple):
    """What `Database.refused` caught: read `.error.diag` after the block."""

    caught: list[psycopg.Error]

    @property
    def error(self) -> psycopg.Error:
        return self.caught[0]


@dataclass
class Database:
    """One database of a cluster. Everything opened through it is closed at the end of the test."""

    cluster: Cluster
    name: str
    _opened: list[Connection] = field(default_factory=list)
    _kept: dict[str, Connection] = field(default_factory=dict)

    @property
    def clock(self) -> Clock:
        return Clock(self)

    def dsn(self, role: str = "postgres") -> str:
        return self.cluster.dsn(self.name, role)

    def uri(self, role: str = "postgres") -> str:
        return self.cluster.uri(self.name, role)

    def connect(self, role: str = "postgres", *, autocommit: bool = True) -> Connection:
        """A new connection, rows as named tuples; `with conn.transaction():` for a transaction."""
        opened = psycopg.connect(self.dsn(role), autocommit=autocommit, row_factory=named_row)
        self._opened.append(opened)
        return opened

    def kept(self, role: str = "postgres") -> Connection:
        """This role's one autocommit connection, which the shorthands below share."""
        if role not in self._kept or self._kept[role].closed:
            self._kept[role] = self.connect(role)
        return self._kept[role]

    def rows(
        self, query: str, parameters: Sequence[object] | Mapping[str, object] | None = None,
        *, role: str = "postgres",
    ) -> list[Row]:  # fmt: skip
        """All rows of one statement, committed at once; empty for one that returns none."""
        cursor = self.kept(role).execute(query, parameters)
        return cursor.fetchall() if cursor.description else []

    def row(
        self, query: str, parameters: Sequence[object] | Mapping[str, object] | None = None,
        *, role: str = "postgres",
    ) -> Row:  # fmt: skip
        """The only row of a statement."""
        found = self.rows(query, parameters, role=role)
        assert len(found) == 1, f"{len(found)} rows: {query}"
        return found[0]

    def value(
        self, query: str, parameters: Sequence[object] | Mapping[str, object] | None = None,
        *, role: str = "postgres",
    ) -> Any:  # fmt: skip
        """The first column of the first row, None when there is no row."""
        found = self.rows(query, parameters, role=role)
        return found[0][0] if found else None

    def call(self, role: str, function: str, /, **arguments: object) -> Row:
        """`select * from public.FUNCTION(name => value, …)` as this role: its one row."""
        found = self.calls(role, function, **arguments)
        assert len(found) == 1, f"{function} answered {len(found)} rows"
        return found[0]

    def calls(self, role: str, function: str, /, **arguments: object) -> list[Row]:
        """As `call`, for functions that answer any number of rows."""
        return call(self.kept(role), function, **arguments)

    @contextmanager
    def refused(self, code: str) -> Iterator[Refused]:
        """The block must raise this refusal: its name (`stale_fence`) or an SQLSTATE (`22023`)."""
        state = self.value("select r.sqlstate from eve.refusal r where r.code = %s", [code])
        refused = Refused([])
        try:
            yield refused
        except psycopg.Error as error:
            if error.sqlstate != (state or code):
                raise
            refused.caught.append(error)
        else:
            raise AssertionError(f"not refused: expected {code}")

    def make_queue(self, queue: str = "q", *, replay_class: str | None = "safe",
                   access: bool = True, **arguments: object) -> str:  # fmt: skip
        """A queue made by t_operator; with `access`, all the t_ logins have their capability in it.

        `durability` is `any` unless said otherwise, since test clusters run without fsync.
        """
        if replay_class is not None:
            arguments["replay_class"] = replay_class
        arguments = {"durability": "any", **arguments}
        self.call("t_operator", "eve_create_queue", queue=queue, **arguments)
        if access:
            for role, capability in CAPABILITIES.items():
                self.call("t_operator", "eve_grant_access",
                          queue=queue, role=role, capability=capability)  # fmt: skip
        return queue

    def close(self) -> None:
        for opened in self._opened:
            opened.close()
        self._opened.clear()
        self._kept.clear()


def call(connection: Connection, function: str, /, **arguments: object) -> list[Row]:
    """As `Database.calls`, on a connection of one's own, in its transaction.

    Arguments are passed by name; a dict, or a list of dicts, goes as jsonb.
    """
    query = sql.SQL("select * from public.{}({})").format(
        sql.Identifier(function),
        sql.SQL(", ").join(
            sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name))
            for name in arguments
        ),
    )
    given = {name: adapted(value) for name, value in arguments.items()}
    return connection.execute(query, given).fetchall()


def adapted(value: object) -> object:
    is_json = isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    )
    return Jsonb(value) if is_json else value


class Home:
    """A cluster with two templates, eve as shipped and with a clock to own, and their copies."""

    shipped = "eve_shipped"
    template = "eve_template"

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._number = itertools.count(1)
        cluster.create(self.shipped)
        cluster.load(self.shipped, "create extension eve")
        cluster.create(self.template, self.shipped)
        cluster.load(self.template, OWN_CLOCK)
        with cluster.connect() as c:
            for login, role in LOGINS.items():
                c.execute(sql.SQL("create role {} login").format(sql.Identifier(login)))
                if role:
                    grant = sql.SQL("grant {} to {}")
                    c.execute(grant.format(sql.Identifier(role), sql.Identifier(login)))

    @contextmanager
    def database(self, *, shipped: bool = False) -> Iterator[Database]:
        """A fresh copy of a template, dropped at the end; `shipped` has no clock to own."""
        name = f"t{os.getpid()}_{next(self._number)}"
        self.cluster.create(name, self.shipped if shipped else self.template)
        database = Database(self.cluster, name)
        try:
            yield database
        finally:
            database.close()
            self.cluster.drop(name)
