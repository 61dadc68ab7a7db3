"""Databases of a server that speaks Python.

learned    a module's database with eve and eve_plpython
tongue     the cluster it is in
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.cluster import Cluster
from support.database import Database
from support.fleet import Fleet


@pytest.fixture(scope="module")
def learned(fleet: Fleet) -> Iterator[Database]:
    with fleet.speaking().database() as database:
        database.rows("create extension eve_plpython cascade")
        yield database


@pytest.fixture(scope="module")
def tongue(fleet: Fleet) -> Cluster:
    return fleet.speaking().cluster
