"""A start delay is cautious, and missing evidence is never a number."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eve_plpython.estimate import start_delay

WINDOWS = st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.001, 10**6)), max_size=8)


@pytest.mark.parametrize(
    ("ahead", "completions", "seconds", "quantile", "delay"),
    [
        (0, None, None, None, 0),
        (10, [10, 20, 40], [10, 10, 10], 0, 10),
        (10, [40, 10, 20], [10, 10, 10], 0.5, 5),
        (10, [40, 10, 20], [10, 10, 10], 0.9, 5),  # never interpolated upwards
        (10, [40, 10, 20], [10, 10, 10], 1, 2.5),
        (10, [], [], 0.5, None),
        (10, None, None, 0.5, None),
        (10, [0], [10], 0.5, None),
        (10, [0, 100], [10, 10], 0.5, None),
        (10, [5, None], [10, 10], 0, 20),
        (10, [5, 5], [10, None], 0, 20),
        (10, [5, 5, -1], [10, 0, 10], 0, 20),
        (10, [5], [10, 10], 0, None),
        (10, [5], [math.inf], 0, None),
        (10, [5], [math.nan], 0, None),
        (None, [5], [10], 0, None),
        (-1, [5], [10], 0, None),
        (10, [5], [10], None, None),
        (10, [5], [10], -0.1, None),
        (10, [5], [10], 1.1, None),
        (10, [5], [10], math.nan, None),
        (2**62, [1], [1.7e308], 0, None),
    ],
)
def test_start_delay(
    ahead: int | None,
    completions: list[int | None] | None,
    seconds: list[float | None] | None,
    quantile: float | None,
    delay: float | None,
) -> None:
    assert start_delay(ahead, completions, seconds, quantile) == delay


@given(st.integers(1, 10**9), WINDOWS, st.floats(0, 1))
def test_enough_windows_were_as_fast(
    ahead: int, windows: list[tuple[int, float]], quantile: float
) -> None:
    done, long = [w[0] for w in windows], [w[1] for w in windows]
    delay = start_delay(ahead, done, long, quantile)
    if delay is None:
        assert sum(d == 0 for d in done) > quantile * (len(windows) - 1) or not windows
        return
    as_fast = sum(d / s >= ahead / delay * (1 - 1e-9) for d, s in windows)
    assert as_fast >= (1 - quantile) * (len(windows) - 1)


@given(st.integers(1, 10**9), WINDOWS, st.floats(0, 1), st.floats(0, 1))
def test_a_lower_quantile_is_never_more_hopeful(
    ahead: int, windows: list[tuple[int, float]], one: float, other: float
) -> None:
    done, long = [w[0] for w in windows], [w[1] for w in windows]
    low, high = (start_delay(ahead, done, long, q) for q in sorted([one, other]))
    assert low is None or (high is not None and low >= high)
