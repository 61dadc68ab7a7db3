"""The import report: what was held, merged, refused, dangling or cyclic, by line, id and reason."""

from __future__ import annotations

import json

from .graph import cycles, depth, stuck, waves
from .model import Backlog, Note, NoteKind, Outcome, shown

_OUTCOMES: dict[Outcome, str] = {
    "submit": "to submit",
    "hold": "to hold",
    "verified": "verified elsewhere",
    "cancelled": "cancelled elsewhere",
}
_HEADS: dict[NoteKind, str] = {
    "refused": "refused (not taken, or not readable)",
    "merged": "merged (said twice, kept once)",
    "dangling": "dangling (waits for an id that is not here; the edge is kept)",
    "cycle": "cycles (nothing in them can start until a person waives an edge)",
    "held": "held (waits for a person)",
    "noted": "noted",
}


def report(backlog: Backlog, *, as_json: bool = False) -> str:
    """The report as text, or as one JSON object with the same facts."""
    return _as_json(backlog) if as_json else _as_text(backlog)


def _as_text(backlog: Backlog) -> str:
    sizes = [len(wave) for wave in waves(backlog)]
    blocked = stuck(backlog)
    knots = cycles(backlog)
    out = [
        f"backlog {shown(backlog.name)} ({backlog.format}), sha256 {backlog.digest}",
        f"tasks {len(backlog.tasks)}: "
        + ", ".join(f"{backlog.count(outcome)} {word}" for outcome, word in _OUTCOMES.items()),
        f"edges {sum(1 for _ in backlog.edges())}, depth {depth(backlog)}, "
        f"ready at once {sizes[0] if sizes else 0}, "
        f"waves {' then '.join(map(str, sizes)) or 'none'}, cycles {len(knots)}, "
        f"cannot start {len(blocked)}",
    ]
    if blocked:
        some = ", ".join(map(shown, blocked[:5]))
        rest = len(blocked) - 5
        more = f" and {rest} more" if rest > 0 else ""
        out.append(f"cannot start: {some}{more} wait, at last, for what is reported below")
    for kind, head in _HEADS.items():
        notes = [note for note in backlog.notes if note.kind == kind]
        if notes:
            out += ["", f"{head}: {len(notes)}", *map(_line, notes)]
    if not backlog.notes:
        out.append("nothing held, merged or refused")
    return "\n".join(out) + "\n"


def _line(note: Note) -> str:
    return f"  {shown(str(note.place))}  {shown(note.id or '-')}  {note.reason}"


def _as_json(backlog: Backlog) -> str:
    return json.dumps(
        {
            "name": backlog.name,
            "format": backlog.format,
            "digest": backlog.digest,
            "tasks": len(backlog.tasks),
            "outcomes": {outcome: backlog.count(outcome) for outcome in _OUTCOMES},
            "edges": sum(1 for _ in backlog.edges()),
            "depth": depth(backlog),
            "waves": [len(wave) for wave in waves(backlog)],
            "stuck": list(stuck(backlog)),
            "cycles": [
                {
                    "members": list(cycle.members),
                    "path": list(cycle.path),
                    "waive": [edge._asdict() for edge in cycle.waive],
                }
                for cycle in cycles(backlog)
            ],
            "notes": [
                {
                    "kind": note.kind,
                    "path": note.place.path,
                    "line": note.place.line,
                    "id": note.id,
                    "reason": note.reason,
                    "fault": note.fault,
                }
                for note in backlog.notes
            ],
        },
        indent=2,
        ensure_ascii=False,
    )
