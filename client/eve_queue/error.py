"""What the queue refuses, as exceptions: the base of the classes that are generated in `errors`.

psycopg raises these classes by itself, because each is declared with its SQLSTATE. Errors of other
drivers become the same classes through `from_driver`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import psycopg

Retry: TypeAlias = Literal["later", "human", "change", "stop", "new key"]

_BY_SQLSTATE: dict[str, type[EveError]] = {}
_BY_CODE: dict[str, type[EveError]] = {}


class EveError(psycopg.DatabaseError):
    """A refusal of the queue. Its code is the contract, its message is for people.

    `code`: the refusal's name · `sqlstate` · `http_status` · `retry`: what the caller may do about
    it: "later" the same call, "human" somebody must act, "change" the call, "stop" working on the
    item, "new key".
    """

    code: ClassVar[str]
    http_status: ClassVar[int]
    retry: ClassVar[Retry]
    default_message: ClassVar[str]
    default_hint: ClassVar[str]

    def __init_subclass__(cls, *, sqlstate: str | None = None) -> None:
        super().__init_subclass__(code=sqlstate)
        if sqlstate is not None:
            _BY_SQLSTATE[sqlstate] = cls
            _BY_CODE[cls.code] = cls

    def __init__(
        self,
        *args: Any,
        detail: Mapping[str, Any] | None = None,
        hint: str | None = None,
        **info: Any,
    ) -> None:
        super().__init__(*(args or (self.default_message,)), **info)
        self._detail = detail
        self._hint = hint

    @property
    def message(self) -> str:
        """One short sentence without the database's prefixes."""
        return self.diag.message_primary or str(self)

    @property
    def detail(self) -> Mapping[str, Any]:
        """The facts behind the refusal; empty where there are none."""
        if self._detail is None:
            self._detail = _object(self.diag.message_detail)
        return self._detail

    @property
    def hint(self) -> str:
        """What to do next, as a sentence."""
        return self._hint or self.diag.message_hint or self.default_hint

    @property
    def next(self) -> tuple[str, ...]:
        """The calls that are allowed now, filled in."""
        return tuple(self.detail.get("next") or ())


def refusal(
    code: str, *, detail: Mapping[str, Any] | None = None, hint: str | None = None
) -> EveError:
    """The exception of a refusal that was returned as a row. Raises KeyError for another code."""
    return _BY_CODE[code](detail=detail or {}, hint=hint)


def from_driver(error: BaseException) -> EveError | None:
    """The refusal inside an error of psycopg, asyncpg, psycopg2, SQLAlchemy or Django, if any.

    try: …
    except DBAPIError as error:
        raise from_driver(error) or error
    """
    for inner in _chain(error):
        if isinstance(inner, EveError):
            return inner
        state = getattr(inner, "sqlstate", None) or getattr(inner, "pgcode", None)
        if state in _BY_SQLSTATE:
            told: Any = getattr(inner, "diag", None)
            made = _BY_SQLSTATE[state](
                getattr(told, "message_primary", None) or getattr(inner, "message", str(inner)),
                detail=_object(
                    getattr(told, "message_detail", None) or getattr(inner, "detail", None)
                ),
                hint=getattr(told, "message_hint", None) or getattr(inner, "hint", None),
            )
            made.__cause__ = error
            return made
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it wraps, the outer first."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        inner = pending.pop()
        if isinstance(inner, BaseException) and id(inner) not in seen:
            seen.add(id(inner))
            yield inner
            pending += [inner.__context__, inner.__cause__, getattr(inner, "orig", None)]


def _object(text: str | None) -> Mapping[str, Any]:
    """DETAIL as the object it is; a text that is none under the key "text"."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"text": value}
