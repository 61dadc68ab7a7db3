"""The model tests count what they ran; the last line of the run says how much it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

COUNTED = ("histories", "events", "steps", "sequences", "calls", "tampered")
_counted: Counter[str] = Counter()


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Iterator[Counter[str]]:
    counted: Counter[str] = Counter()
    yield counted
    for what, number in counted.items():
        assert what in COUNTED
        record_property(f"counted {what}", number)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        for name, value in report.user_properties:
            if name.startswith("counted ") and isinstance(value, int):
                _counted[name.removeprefix("counted ")] += value


def pytest_unconfigure(config: pytest.Config) -> None:
    if _counted and not hasattr(config, "workerinput"):
        print("model: " + " ".join(f"{what}={_counted[what]}" for what in COUNTED))
