"""Sqitch, one plain file and CREATE EXTENSION make the same database; revert takes it all away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.cluster import Cluster
from support.roads import DETACH, migra, schema_text, sqitch

Installed = Callable[[str], str]

LEFT_BEHIND = """
select format('%s %s', i.type, i.identity)
from (
    select 'pg_class'::regclass as class, oid from pg_class
    union all select 'pg_proc'::regclass, oid from pg_proc
    union all select 'pg_type'::regclass, oid from pg_type
    union all select 'pg_namespace'::regclass, oid from pg_namespace
    union all select 'pg_default_acl'::regclass, oid from pg_default_acl
) as o
cross join lateral pg_identify_object(o.class, o.oid, 0) as i
where o.oid >= 16384 and coalesce(i.schema, i.name, '') !~ '^(sqitch|pg_toast)'
    and i.identity !~ '^(sqitch|pg_toast)[.]'
order by 1
"""


@pytest.fixture
def detached(cluster: Cluster, installed: Installed) -> str:
    """The extension's database with its members let go, so that both comparisons see them."""
    name = "road_detached"
    cluster.drop(name)
    cluster.create(name, installed("extension"))
    cluster.load(name, DETACH)
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


def test_revert_leaves_nothing(cluster: Cluster, installed: Installed) -> None:
    cluster.drop("road_revert")
    cluster.create("road_revert", installed("sqitch"))
    sqitch(cluster, "road_revert", "revert", "-y")
    with cluster.connect("road_revert") as c:
        assert [row[0] for row in c.execute(LEFT_BEHIND)] == []
        acl = c.execute("select nspacl::text from pg_namespace where nspname = 'public'").fetchone()
    with cluster.connect("template1") as c:
        before = c.execute("select nspacl::text from pg_namespace where nspname = 'public'")
        assert acl == before.fetchone()


def test_revert_keeps_roles_that_are_used(cluster: Cluster, installed: Installed) -> None:
    assert installed("plain")
    cluster.drop("road_revert")
    cluster.create("road_revert", installed("sqitch"))
    sqitch(cluster, "road_revert", "revert", "-y")
    with cluster.connect() as c:
        roles = c.execute("select count(*) from pg_roles where rolname like 'eve\\_%'").fetchone()
    assert roles == (7,)


def test_deploys_again_after_a_revert(cluster: Cluster, installed: Installed) -> None:
    cluster.drop("road_revert")
    cluster.create("road_revert", installed("sqitch"))
    sqitch(cluster, "road_revert", "revert", "-y")
    sqitch(cluster, "road_revert", "deploy", "--verify")
    assert schema_text(cluster, "road_revert") == schema_text(cluster, installed("plain"))
