"""How long until work that is behind other work starts: a cautious answer or none."""

from __future__ import annotations

import math
from collections.abc import Sequence


def rates(
    completions: Sequence[int | None] | None, seconds: Sequence[float | None] | None
) -> list[float]:
    """Completions a second of each window, the slowest first; a window not measured is left out."""
    if not completions or not seconds or len(completions) != len(seconds):
        return []
    return sorted(
        done / long
        for done, long in zip(completions, seconds, strict=True)
        if done is not None and long is not None and done >= 0 and 0 < long < math.inf
    )


def start_delay(
    ahead: int | None,
    completions: Sequence[int | None] | None,
    seconds: Sequence[float | None] | None,
    quantile: float | None,
) -> float | None:
    """Seconds until work starts that has so many items ahead: ahead divided by a rate that the
    windows reached but for the given lower quantile of them (0 the slowest window, 0.5 the median),
    never interpolated upwards, never a mean. completions[n] items were completed in a window of
    seconds[n]. 0 when nothing is ahead; null, which is unavailable and never 0, when there is no
    measured window, the rate is zero, an argument is null, ahead is negative, the quantile is not
    between 0 and 1, or the arrays differ in length. Raises nothing, reads its arguments alone.
    """
    if ahead is None or ahead < 0:
        return None
    if ahead == 0:
        return 0.0
    if quantile is None or not 0 <= quantile <= 1:
        return None
    reached = rates(completions, seconds)
    if not reached:
        return None
    rate = reached[math.floor(quantile * (len(reached) - 1))]
    if rate <= 0:
        return None
    delay = ahead / rate
    return delay if math.isfinite(delay) else None
