"""Who may install eve, and where it refuses to be installed."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from support.cluster import Cluster, running
from support.roads import plain_script, schema_text, sqitch
from support.servers import Server

Installed = Callable[[str], str]


def test_refuses_where_public_may_create(cluster: Cluster) -> None:
    cluster.drop("road_open")
    cluster.create("road_open", "template0")
    cluster.load("road_open", "grant create on schema public to public")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
        cluster.load("road_open", plain_script())
    assert "revoke create on schema public" in (refused.value.diag.message_hint or "")
    with cluster.connect("road_open") as c:
        assert c.execute("select to_regnamespace('eve')").fetchone() == (None,)


def test_refuses_an_encoding_that_is_not_utf8(cluster: Cluster) -> None:
    cluster.drop("road_latin")
    with cluster.connect() as c:
        c.execute("create database road_latin encoding 'LATIN1' locale 'C' template template0")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        cluster.load("road_latin", plain_script().encode("latin-1", "replace").decode("latin-1"))


def test_an_owner_of_the_database_installs(cluster: Cluster, installed: Installed) -> None:
    """The roles are there, the installer is a member of eve_owner and has no other right."""
    expected = schema_text(cluster, installed("plain"))
    cluster.drop("road_owned")
    with cluster.connect() as c:
        c.execute("drop role if exists t_installer")
        c.execute("create role t_installer login")
        c.execute("grant eve_owner to t_installer")
    cluster.create("road_owned", owner="t_installer")
    cluster.load("road_owned", plain_script(), role="t_installer")
    assert schema_text(cluster, "road_owned") == expected


def test_an_owner_of_the_database_deploys_and_reverts(cluster: Cluster) -> None:
    cluster.drop("road_owned")
    with cluster.connect() as c:
        c.execute("drop role if exists t_installer")
        c.execute("create role t_installer login")
        c.execute("grant eve_owner to t_installer")
    cluster.create("road_owned", owner="t_installer")
    sqitch(cluster, "road_owned", "deploy", "--verify", role="t_installer")
    sqitch(cluster, "road_owned", "revert", "-y", role="t_installer")


def test_a_maker_of_roles_installs_in_a_fresh_cluster(
    cluster: Cluster, server: Server, installed: Installed
) -> None:
    """CREATEROLE and a database of one's own are enough; the roles are made on the way."""
    expected = schema_text(cluster, installed("plain"))
    with running(server) as fresh:
        with fresh.connect() as c:
            c.execute("create role t_installer login createrole")
        fresh.create("road_owned", owner="t_installer")
        fresh.load("road_owned", plain_script(), role="t_installer")
        assert schema_text(fresh, "road_owned") == expected


def test_installing_twice_changes_nothing(cluster: Cluster, installed: Installed) -> None:
    database = installed("plain")
    before = schema_text(cluster, database)
    with pytest.raises(psycopg.errors.DuplicateSchema):
        cluster.load(database, plain_script())
    assert schema_text(cluster, database) == before
