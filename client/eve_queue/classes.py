"""Class policies from a file, and what they would change.

    queue = "builds"

    [class.mail]
    preset = "job"
    replay_class = "reconcilable"
    item_limit = 10000
    schema = "mail.schema.json"          # beside the file, or the schema itself as a table
    declared.telemetry_policy = "counts only"

The keys of a table are `preset` and the fields of a policy document: SQL says what they mean and
refuses what it does not know.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from .answers import EventAnswer

PRESET = "job"  # the default of eve_define_class


class Unreadable(ValueError):
    """What is wrong with the file, with its table and key."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One class as the file wants it."""

    name: str
    preset: str
    policy: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision of a class, as the queue's history tells it."""

    name: str
    revision: int
    preset: str
    policy: Mapping[str, Any]
    digest: str
    answers: Mapping[str, Mapping[str, Any]]
    unanswered: Mapping[str, str]
    at: datetime
    actor: str


@dataclass(frozen=True, slots=True)
class Difference:
    """What a definition changes of the present revision of its class."""

    definition: Definition
    present: Revision | None
    added: Mapping[str, Any]
    changed: Mapping[str, tuple[Any, Any]]
    removed: Mapping[str, Any]

    @property
    def preset(self) -> tuple[str, str] | None:
        """The presets before and after, where they differ."""
        if self.present is None or self.present.preset == self.definition.preset:
            return None
        return self.present.preset, self.definition.preset

    def __bool__(self) -> bool:
        return bool(
            self.present is None or self.preset or self.added or self.changed or self.removed
        )


def read(path: Path) -> tuple[str | None, list[Definition]]:
    """The queue that a file names, if any, and its classes in order.

    Raises Unreadable with the file, the table and the key.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    except ValueError as error:  # TOML or UTF-8
        raise Unreadable(f"{path}: {error}") from None
    for key in document:
        if key not in ("queue", "class"):
            raise Unreadable(f"{path}: {key}: a file has queue and tables [class.NAME]")
    queue = document.get("queue")
    if queue is not None and not isinstance(queue, str):
        raise Unreadable(f"{path}: queue: is not a text")
    tables = document.get("class", {})
    if not isinstance(tables, dict):
        raise Unreadable(f"{path}: class: write tables [class.NAME]")
    return queue, [_definition(path, name, table) for name, table in tables.items()]


def _definition(path: Path, name: str, table: object) -> Definition:
    where = f"{path}: [class.{name}]"
    if not isinstance(table, dict):
        raise Unreadable(f"{where}: is not a table")
    policy = dict(table)
    preset = policy.pop("preset", PRESET)
    if not isinstance(preset, str):
        raise Unreadable(f"{where} preset: is not a text")
    if isinstance(policy.get("schema"), str):
        policy["schema"] = _schema(path.parent / policy["schema"], where)
    for key, value in policy.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Unreadable(f"{where} {key}: {error}") from None
    return Definition(name, preset, policy)


def _schema(path: Path, where: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unreadable(f"{where} schema: {path}: {error.strerror}") from None
    except ValueError as error:
        raise Unreadable(f"{where} schema: {path}: {error}") from None


def revisions(events: Iterable[EventAnswer]) -> dict[str, list[Revision]]:
    """The revisions of each class, oldest first, from the history of item 0."""
    found: dict[str, list[Revision]] = {}
    for event in events:
        if event.kind == "class_defined":
            data = event.data
            found.setdefault(data["class"], []).append(
                Revision(
                    data["class"],
                    data["revision"],
                    data["preset"],
                    data["document"],
                    data["digest"],
                    data.get("answers") or {},
                    data.get("unanswered") or {},
                    event.at,
                    event.actor,
                )
            )
    return found


def difference(definition: Definition, history: Sequence[Revision]) -> Difference:
    present = history[-1] if history else None
    before = present.policy if present else {}
    after = definition.policy
    return Difference(
        definition,
        present,
        {key: value for key, value in after.items() if key not in before},
        {
            key: (before[key], value)
            for key, value in after.items()
            if key in before and not same(before[key], value)
        },
        {key: value for key, value in before.items() if key not in after},
    )


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
