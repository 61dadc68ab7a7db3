"""One call of one function, whatever the driver: SQL text with named arguments, values, reader.

    call = calls.submit("mail", {"to": "ada"}, work_id="welcome-1")

    query, values = call.pyformat()     psycopg, Django: cursor.execute(query, values)
    query, values = call.named()        SQLAlchemy: connection.execute(text(query), values)
    query, values = call.numeric()      asyncpg: await connection.fetch(query, *values)

    answer = call.result(rows)          the typed answer, or a list where the function answers many

Only arguments that were given are sent; what the others mean is written in SQL, once. JSON and
intervals travel as text, so that no driver has to be set up for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, LiteralString, TypeAlias, TypeVar, cast

from .answer import Answer, Json, JsonText, Record

R_co = TypeVar("R_co", covariant=True)
Given: TypeAlias = "tuple[LiteralString, LiteralString, object]"  # name, SQL type, value


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value of a statement: its name, the SQL around its placeholder, what the driver gets."""

    name: LiteralString
    before: LiteralString
    after: LiteralString
    value: object


@dataclass(frozen=True, slots=True)
class Call(Generic[R_co]):
    """A function with the arguments that were given, ready for any driver."""

    function: LiteralString
    columns: LiteralString
    arguments: tuple[tuple[LiteralString, tuple[Parameter, ...]], ...]
    row: type[Answer] | None
    many: bool

    def pyformat(self) -> tuple[LiteralString, dict[str, object]]:
        """Placeholders as in `%(item)s`: psycopg and Django."""
        return self._render("%(", ")s"), self._values()

    def named(self) -> tuple[LiteralString, dict[str, object]]:
        """Placeholders as in `:item`: SQLAlchemy's text()."""
        return self._render(":", ""), self._values()

    def numeric(self) -> tuple[LiteralString, list[object]]:
        """Placeholders as in `$1`: asyncpg."""
        numbers = iter(_NUMBERS)
        return (
            self._text(
                (argument, [p.before + next(numbers) + p.after for p in parameters])
                for argument, parameters in self.arguments
            ),
            list(self._values().values()),
        )

    def result(self, rows: Iterable[Record]) -> R_co:
        """The answer from what the driver fetched: all rows of the statement."""
        if self.row is None:
            (value,) = (_only(record) for record in rows)
            read: object = json.loads(value) if isinstance(value, str) and value else None
        elif self.many:
            read = [self.row.read(record) for record in rows]
        else:
            (read,) = (self.row.read(record) for record in rows)
        return cast("R_co", read)

    def _values(self) -> dict[str, object]:
        return {p.name: p.value for _, parameters in self.arguments for p in parameters}

    def _render(self, left: LiteralString, right: LiteralString) -> LiteralString:
        return self._text(
            (argument, [p.before + left + p.name + right + p.after for p in parameters])
            for argument, parameters in self.arguments
        )

    def _text(
        self, arguments: Iterator[tuple[LiteralString, list[LiteralString]]]
    ) -> LiteralString:
        passed: LiteralString = ", ".join(
            name + " => " + (parts[0] if len(parts) == 1 else _lease(parts))
            for name, parts in arguments
        )
        return "select " + self.columns + " from public." + self.function + "(" + passed + ") as r"


def call(
    function: LiteralString,
    row: type[Answer] | None,
    *,
    many: bool,
    given: Iterable[Given],
) -> Call[Any]:
    """A call from name, SQL type and value of each argument; None is an argument not given."""
    arguments = tuple(
        (name, tuple(_parameters(name, kind, value)))
        for name, kind, value in given
        if value is not None
    )
    columns: LiteralString = row._select if row else "cast(r as text)"
    return Call(function, columns, arguments, row, many)


_NUMBERS: tuple[LiteralString, ...] = (
    "$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10", "$11", "$12", "$13", "$14", "$15",
    "$16", "$17", "$18", "$19", "$20", "$21", "$22", "$23", "$24", "$25", "$26", "$27", "$28",
    "$29", "$30", "$31", "$32", "$33", "$34", "$35", "$36", "$37", "$38", "$39", "$40",
)  # fmt: skip
_THROUGH_TEXT: dict[str, LiteralString] = {
    "jsonb": "text",
    "jsonb[]": "text[]",
    "interval": "text",
    "regclass": "text",
}


def _parameters(name: LiteralString, kind: LiteralString, value: object) -> Iterator[Parameter]:
    if kind == "public.eve_lease":
        item, token = cast("tuple[int, int]", value)
        yield Parameter("under_item", "cast(", " as bigint)", item)
        yield Parameter("under_token", "cast(", " as bigint)", token)
    elif kind in _THROUGH_TEXT:
        after = " as " + _THROUGH_TEXT[kind] + ") as " + kind + ")"
        yield Parameter(name, "cast(cast(", after, _sent(name, kind, value))
    else:
        yield Parameter(name, "cast(", " as " + kind + ")", _sent(name, kind, value))


def _lease(parts: list[LiteralString]) -> LiteralString:
    return "cast(row(" + ", ".join(parts) + ") as public.eve_lease)"


def _sent(name: str, kind: str, value: object) -> object:
    """The value as every driver takes it for this type."""
    if kind.endswith("[]"):
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise TypeError(f"{name} is a {type(value).__name__}, expected a list")
        if kind == "jsonb[]":
            return [None if element is None else _json(element) for element in value]
        return list(value)
    if kind == "jsonb":
        return _json(value)
    if kind == "interval" and isinstance(value, timedelta):
        return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
    if kind == "timestamptz" and (not isinstance(value, datetime) or value.tzinfo is None):
        raise TypeError(f"{name} is no datetime with a zone")
    return value


def encoded(value: Json) -> JsonText | None:
    """A value as JSON text, None as None. Raises TypeError and ValueError for what has no form."""
    return None if value is None else JsonText(_json(value))


def _json(value: object) -> str:
    if isinstance(value, JsonText):
        return str(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_as_json)


def _as_json(value: object) -> object:
    """Mappings and sequences that are no dict and no list."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _only(record: Record) -> object:
    """The value of a row of one column."""
    values = list(record.values()) if isinstance(record, Mapping) else list(record)
    (value,) = values
    return value
