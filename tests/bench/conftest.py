"""Measured, never part of `make test`: each test prints JSON lines, and asserts ratios only.

`EVE_SCALE=0.1` is a tenth of the work. Ratios are within one run; the machine's speed is no result.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

Tell = Callable[..., None]


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """Prints one JSON line, also when pytest captures."""

    def line(bench: str, **values: object) -> None:
        with capsys.disabled():
            print(json.dumps({"bench": bench, **values}), flush=True)

    return line
