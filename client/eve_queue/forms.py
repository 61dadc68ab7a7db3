"""Forms for people: a worksheet that keeps what is said of an item apart, and two cards of six.

A worksheet is blank, or filled in from what is on record (`eve_checks`). What nothing on record
answers stays a blank line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BLANK = "________"

# Sections of the worksheet, each with what it asks and the codes of eve_checks that answer it.
SECTIONS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("Envelope: what was asked", (
        ("operation and effect", "A1-087"), ("earliest start, deadline, margin", "A1-089"),
        ("value window", "A2-134"), ("cancellation", "A1-090"),
    )),
    ("Identities: message, consequence, attempt", (
        ("message apart from consequence", "A1-088"), ("intent and digest", "A2-133"),
        ("fencing token of the attempt", "A1-098"),
    )),
    ("State boundaries: none stands for another", (
        ("stored", "A1-001"), ("valid", "A1-002"), ("eligible", "A1-003"), ("leased", "A1-004"),
        ("completed", "A1-005"),
    )),
    ("Capacity evidence: one window", (
        ("fresh evidence of the class", "A1-092"), ("what was measured", "A1-093"),
        ("missing or stale", "A1-094"), ("budgets", "A2-137"),
    )),
    ("Replay class: what a repetition may do", (
        ("class", "A1-095"), ("protection", "A1-096"), ("ambiguous effects", "A1-102"),
    )),
    ("Ownership: one each", (("admission, retry, execution", "A1-097"),)),
    ("Again at execution", (
        ("deadline", "A2-150"), ("cancellation", "A2-151"), ("revisions", "A1-091"),
    )),
    ("Terminal observations", (
        ("completion test", "A1-103"), ("record of the end", "A1-105"),
        ("kinds of ends", "A1-104"),
    )),
)  # fmt: skip
NO_PROOF = "A filled form proves nothing by itself: each line stands on the record it names."

CARD = (
    ("intent", "Name the operation, its effect and until when it is wanted."),
    ("capacity", "Read fresh evidence of the class, all fields of one window; missing is no zero."),
    ("effect safety", "Say what a repetition may do before the first attempt is made."),
    ("ownership", "Give admission, retry and execution one owner each, and execution a fence."),
    ("admission", "Record one of five decisions with its reason, and who releases what is held."),
    ("terminal evidence", "Call it complete from observed effects, and say what that leaves open."),
)
STORED_CARD = (
    ("intent and value", "Is this stored item still wanted, and not cancelled?"),
    ("deadline and drain", "Does the measured wait leave time to finish, with the margin?"),
    ("payload and repetition", "Is the payload valid today, and what may a second attempt do?"),
    ("fenced lease", "Does one holder have it, under a token that ends the one before?"),
    ("effect evidence", "Which effects were observed, by whom, bound to this intent?"),
    ("terminal outcome", "Which end is on record, and which attempts does it stop?"),
)


def worksheet(title: str, answers: Mapping[str, tuple[bool | None, Mapping[str, Any]]]) -> str:
    """A worksheet; `answers` has what is known by code, and may be empty."""
    return "\n".join(_worksheet(title, answers))


def _worksheet(
    title: str, answers: Mapping[str, tuple[bool | None, Mapping[str, Any]]]
) -> Iterator[str]:
    yield f"Worksheet: {title}"
    for number, (section, lines) in enumerate(SECTIONS, 1):
        yield ""
        yield f"{number}. {section}"
        for what, code in lines:
            answer, evidence = answers.get(code, (None, {}))
            mark = {True: "yes", False: "no", None: BLANK}[answer]
            known = ", ".join(f"{name} {_word(value)}" for name, value in evidence.items())
            yield f"   [{mark}] {what} ({code})" + (f": {known}" if known else "")
    yield ""
    yield NO_PROOF


def card(stored: bool) -> str:
    """Six checks before work is taken, or six gates for an item that is stored."""
    rows: Sequence[tuple[str, str]] = STORED_CARD if stored else CARD
    head = "Six gates, from a STORED item on" if stored else "Six checks, before work is taken"
    return "\n".join([head, *(f"{n}. {name}: {ask}" for n, (name, ask) in enumerate(rows, 1))])


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_word(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_word, value)) + "]"
    return (
        {True: "yes", False: "no", None: "unavailable"}.get(value, str(value))
        if isinstance(value, bool | None)
        else str(value)
    )
