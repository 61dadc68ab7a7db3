"""How the command line speaks: text or JSON on stdout, what went wrong on stderr, exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import typer
from rich.console import Console
from rich.table import Table

from .answer import Answer
from .answers import AuditAnswer
from .errors import EveError
from .importers.model import shown
from .install import NotPossible

OK, USAGE, LATER, CHANGE, HUMAN, STALE, UNVERIFIED, UNREACHABLE = 0, 2, 3, 4, 5, 6, 7, 8
_BY_RETRY = {"later": LATER, "change": CHANGE, "new key": CHANGE, "human": HUMAN, "stop": STALE}
_BY_SQLSTATE = {
    "42501": HUMAN,  # nobody gave this login the role
    "40001": LATER,
    "40P01": LATER,
    "55P03": LATER,
    "53300": LATER,
    "42883": CHANGE,  # no such function: not installed, or another version
}
_BY_CLASS = {"08": UNREACHABLE, "57": UNREACHABLE, "22": USAGE}


class Fault(Exception):
    """What the command line refuses by itself."""

    def __init__(self, message: str, code: int, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


def page(text: str) -> str:
    """Text of several lines: what is foreign in it cannot steer a terminal, nothing is cut."""
    return "".join(
        char
        if char.isprintable() or char == "\n"
        else char.encode("unicode_escape", "surrogatepass").decode("ascii")
        for char in text
    )


class Out:
    """Text for people or JSON for machines, never both."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def row(self, answer: Answer | Mapping[str, Any]) -> None:
        """One JSON line, when JSON was asked for."""
        if self.as_json:
            print(as_line(answer))

    def say(self, text: str) -> None:
        """Text, when no JSON was asked for."""
        if not self.as_json:
            self.console.print(text)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        if self.as_json:
            return
        table = Table(*head, box=None, pad_edge=False, show_header=any(head))
        for row in rows:
            table.add_row(*map(shown, row))
        if not self.console.is_terminal:
            self.console.width = 400  # a file is no terminal of 80 columns
        self.console.print(table)


@contextmanager
def told(as_json: bool) -> Iterator[Out]:
    """Whatever goes wrong inside is told once, with its exit code."""
    try:
        yield Out(as_json)
    except EveError as refusal:
        complain(
            as_json,
            refusal.message,
            _BY_RETRY[refusal.retry],
            code=refusal.code,
            sqlstate=refusal.sqlstate,
            hint=refusal.hint,
            next=list(refusal.next),
            detail=dict(refusal.detail),
        )
    except psycopg.Error as error:
        complain(
            as_json,
            error.diag.message_primary or str(error).strip(),
            exit_code(error),
            sqlstate=error.sqlstate,
            hint=error.diag.message_hint or "",
        )
    except NotPossible as error:
        complain(as_json, str(error), USAGE)
    except Fault as fault:
        complain(as_json, str(fault), fault.code, hint=fault.hint)


def complain(as_json: bool, message: str, exit_with: int, **more: Any) -> None:
    known = {name: value for name, value in more.items() if value}
    if as_json:
        print(as_line({"error": message, "exit": exit_with, **known}), file=sys.stderr)
    else:
        state = f" ({known['sqlstate']})" if "sqlstate" in known else ""
        print(f"eve: {shown_json(message)}{state}", file=sys.stderr)
        for line in (known.get("hint"), *(f"next: {call}" for call in known.get("next", []))):
            if line:
                print(f"     {shown_json(line)}", file=sys.stderr)
    raise typer.Exit(exit_with)


def exit_code(error: psycopg.Error) -> int:
    """The exit code of an error that is no refusal."""
    state = error.sqlstate
    if state is None:
        return UNREACHABLE if isinstance(error, psycopg.OperationalError) else USAGE
    return _BY_SQLSTATE.get(state) or _BY_CLASS.get(state[:2]) or CHANGE


def audit_line(answers: Sequence[AuditAnswer]) -> str:
    """The line that ends an audit, over all its queues."""

    def worst(words: Iterable[str], good: str) -> str:
        return next((word for word in words if word != good), good)

    return (
        f"audit: {'clean' if all(a.clean for a in answers) else 'not clean'}"
        f" events={sum(a.events for a in answers)} items={sum(a.items for a in answers)}"
        f" replay={worst((a.replay for a in answers), 'equal')}"
        f" chain={worst((a.chain for a in answers), 'intact')}"
    )


def as_line(answer: Answer | Mapping[str, Any]) -> str:
    """One line of JSON: instants in ISO 8601, intervals in seconds, tokens as text, bytes hex."""
    values = answer.as_dict() if isinstance(answer, Answer) else dict(answer)
    if isinstance(values.get("token"), int):
        values["token"] = str(values["token"])
    return json.dumps(values, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def shown_json(value: object) -> str:
    """A value on one line, fit for a terminal."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def when(instant: datetime | None) -> str:
    """In the zone of whoever reads."""
    return "" if instant is None else instant.astimezone().isoformat(" ", "seconds")
