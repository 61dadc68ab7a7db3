"""What a call answers, read from the row of any driver. The classes are generated in `answers`."""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, ClassVar, LiteralString, NamedTuple, Self, TypeAlias

from .error import refusal

Json: TypeAlias = "Mapping[str, Any] | Sequence[Any] | str | int | float | bool | None"
Record: TypeAlias = "Sequence[Any] | Mapping[str, Any]"


class JsonText(str):
    """Text that is JSON already: sent as it is. `JsonText("null")` is the JSON null."""

    __slots__ = ()


class Lease(NamedTuple):
    """Authority over one item: act under it only after the acquiring transaction committed.

    `token`: the fencing token, an integer below 2⁵³.
    """

    item: int
    token: int

    def __str__(self) -> str:
        return f"{self.item}.{self.token}"

    @classmethod
    def parse(cls, text: str) -> Lease:
        """From the one-word form that surfaces carry. Raises ValueError."""
        item, dot, token = text.partition(".")
        if not (dot and item.isdecimal() and token.isdecimal()):
            raise ValueError(f'"{text[:100]}" is no lease: expected item.token')
        return cls(int(item), int(token))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A typed row. Fields are named as in SQL (`class_` for class); times are in UTC."""

    _select: ClassVar[LiteralString]
    _json: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def read(cls, record: Record) -> Self:
        """From a row in the order of the fields, or from a mapping by name."""
        names = _columns(cls)
        values = [record[name] for name in names] if isinstance(record, Mapping) else tuple(record)
        if len(values) != len(names):
            raise ValueError(f"{cls.__name__} has {len(names)} columns, the row {len(values)}")
        return cls(
            **{
                field.name: json.loads(value)
                if name in cls._json and isinstance(value, str | bytes)
                else _plain(value)
                for field, name, value in zip(fields(cls), names, values, strict=True)
            }
        )

    def as_dict(self) -> dict[str, Any]:
        """By the names of SQL."""
        return {name: getattr(self, name_in_python(name)) for name in _columns(type(self))}


class Refusable:
    """An answer that can say no. The no is a row because it must be remembered, or is routine."""

    __slots__ = ()

    def raise_for_refusal(self) -> Self:
        """Itself, or the refusal as its exception."""
        code = getattr(self, "refusal", None)
        if code is None:
            return self
        detail = dict(getattr(self, "detail", None) or {})
        told = getattr(self, "next", None)
        if told:
            detail.setdefault("next", told)
        raise refusal(code, detail=detail)


class Decided:
    """An admission: `raise_for_refusal` raises NotAdmitted for REJECT and EXPIRE."""

    __slots__ = ()

    def raise_for_refusal(self) -> Self:
        """Itself where the request was stored or is represented by another, else NotAdmitted."""
        decision = getattr(self, "decision", None)
        if decision not in ("REJECT", "EXPIRE"):
            return self
        raise refusal(
            "not_admitted",
            detail={
                name: getattr(self, name) for name in ("decision", "reason", "work_id", "evidence")
            },
        )


def name_in_python(name: str) -> str:
    """`class` and `return` are words of Python, so they get an underscore."""
    return name + "_" if keyword.iskeyword(name) else name


def _columns(cls: type[Answer]) -> tuple[str, ...]:
    return tuple(field.name.removesuffix("_") for field in fields(cls))


def _plain(value: Any) -> Any:
    """Drivers differ in zones, lists and buffers; answers do not."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return tuple(value) if isinstance(value, list) else value
