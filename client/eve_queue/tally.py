"""What a worker has done so far, and how long it waits before it asks again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from .answers import FinishAnswer, TurnAnswer


@dataclass(slots=True)
class Tally:
    """Counts of one worker. `refusals`: how often the queue said which no."""

    done: int = 0
    failed: int = 0
    returned: int = 0
    refused: int = 0
    refusals: dict[str, int] = field(default_factory=dict)

    def refuse(self, code: str) -> None:
        self.refusals[code] = self.refusals.get(code, 0) + 1

    def finish(self, answer: TurnAnswer | FinishAnswer) -> None:
        """Counts one completion as the queue answered it."""
        if answer.accepted:
            self.done += 1
        else:
            self.refused += 1
            self.refuse(answer.refusal or "refused")


@dataclass(slots=True)
class Backoff:
    """Seconds to wait after an answer without work: as the answer says, else ever longer.

    Between `least` and `most`, give or take a quarter, so that no two workers come together.
    """

    least: float
    most: float
    empty: int = 0

    def reset(self) -> None:
        self.empty = 0

    def seconds(
        self, *, next_at: datetime | None = None, retry_after: timedelta | None = None,
        skew: timedelta = timedelta(0),
    ) -> float:  # fmt: skip
        """`retry_after` is kept to, `next_at` cuts the wait short: what is submitted meanwhile is
        known to nobody. `skew`: how much the server's clock is ahead of ours.
        """
        grown = min(self.most, self.least * 2.0 ** min(self.empty, 30))
        self.empty += 1
        if retry_after is not None:
            grown = min(self.most, max(self.least, retry_after.total_seconds()))
        elif next_at is not None:
            left = (next_at - skew - datetime.now(UTC)).total_seconds()
            grown = min(grown, max(self.least, left))
        return grown * random.uniform(0.75, 1.25)
