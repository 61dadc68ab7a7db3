"""Which tests one worker runs together: those whose fixtures are dear, or that follow each other.

(The group marker of xdist has no effect under pytest 9, which keeps the id of a test to itself.)
"""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

PAGE = re.compile(r"tests/docs/[^:]+")
ROAD = re.compile(r"tests/roads/.*\[.*?(pg\d+)")


def together(nodeid: str) -> str:
    """The name of the group of a test; alone it is its own.

    >>> together("tests/docs/test_readme.py::test_python")
    'tests/docs/test_readme.py'
    >>> together("tests/roads/test_equal.py::test_roads[pg15-plain]")
    'roads-pg15'
    """
    if nodeid.startswith(("tests/plpython/test_roads.py", "tests/plpython/test_checks.py")):
        return nodeid.split("::", maxsplit=1)[0]
    if page := PAGE.match(nodeid):
        return page[0]
    if road := ROAD.match(nodeid):
        return f"roads-{road[1]}"
    return nodeid


class Spread(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return together(nodeid)
