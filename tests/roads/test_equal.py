"""Sqitch, one plain file and CREATE EXTENSION make the same database; revert takes it all away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.cluster import Cluster
from support.roads import by_plain, detach, left_behind, migra, schema_text, sqitch

Installed = Callable[[str], str]


@pytest.fixture
def detached(cluster: Cluster, installed: Installed) -> str:
    """The extension's database with its members let go, so that both comparisons see them."""
    name = "road_detached"
    cluster.drop(name)
    cluster.create(name, installed("extension"))
    cluster.load(name, detach())
    return name


def test_plain_equals_sqitch(cluster: Cluster, installed: Installed) -> None:
    one, other = installed("sqitch"), installed("plain")
    assert schema_text(cluster, one) == schema_text(cluster, other)
    assert migra(cluster, one, other) == ""


def test_extension_equals_sqitch(cluster: Cluster, installed: Installed, detached: str) -> None:
    one = installed("sqitch")
    assert schema_text(cluster, one) == schema_text(cluster, detached)
    assert migra(cluster, one, detached) == ""


def test_the_comparison_sees_a_difference(cluster: Cluster, installed: Installed) -> None:
    cluster.drop("road_other")
    cluster.create("road_other", installed("plain"))
    cluster.load("road_other", "alter table eve.refusal add column more text")
    cluster.load("road_other", "comment on schema eve is 'something else'")
    assert "something else" in schema_text(cluster, "road_other")
    assert "more" in migra(cluster, installed("plain"), "road_other")


def test_sqitch_verifies(cluster: Cluster, installed: Installed) -> None:
    database = installed("sqitch")
    assert "Verify successful" in sqitch(cluster, database, "verify")
    assert "Check successful" in sqitch(cluster, database, "check")


def test_revert_leaves_nothing_and_the_way_is_free_again(
    cluster: Cluster, installed: Installed
) -> None:
    expected = schema_text(cluster, installed("plain"))
    cluster.drop("road_revert")
    cluster.create("road_revert", installed("sqitch"))
    sqitch(cluster, "road_revert", "revert", "-y")
    assert left_behind(cluster, "road_revert") == []
    # Other databases of the cluster have eve: its roles stay.
    with cluster.connect() as c:
        roles = c.execute("select count(*) from pg_roles where rolname like 'eve\\_%'").fetchone()
    assert roles == (7,)
    by_plain(cluster, "road_revert")
    assert schema_text(cluster, "road_revert") == expected
