"""Words that foreign trackers use for urgency and state, and the ranks and outcomes they mean."""

from __future__ import annotations

from .model import Outcome

DEFAULT_RANK = 2

_RANKS = {
    0: ("0", "p0", "critical", "critical-urgent", "urgent", "blocker", "highest"),
    1: ("1", "p1", "high", "important", "important-soon"),
    2: ("2", "p2", "medium", "normal", "important-longterm"),
    3: ("3", "4", "p3", "p4", "low", "lowest", "minor", "trivial", "backlog"),
}
_RANK_OF = {word: rank for rank, words in _RANKS.items() for word in words}
_OUTCOMES: dict[Outcome, tuple[str, ...]] = {
    "verified": ("done", "completed", "complete", "closed"),
    "cancelled": ("cancelled", "canceled"),
    "hold": ("deferred", "on-hold", "paused"),
}
_OUTCOME_OF = {word: outcome for outcome, words in _OUTCOMES.items() for word in words}
CLAIMED = frozenset({"in-progress", "doing", "started", "review"})


def fold(word: str) -> str:
    """The word in lower case, with one hyphen for spaces and underscores."""
    return "-".join(word.casefold().replace("_", " ").replace("-", " ").split())


def rank_of(word: str) -> int | None:
    """The rank that a word of urgency means, or None for an unknown word."""
    return _RANK_OF.get(fold(word))


def outcome_of(word: str) -> Outcome:
    """The outcome that a word of state means; what is neither ended nor put off is submitted."""
    return _OUTCOME_OF.get(fold(word), "submit")
