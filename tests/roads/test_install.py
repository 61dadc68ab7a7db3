"""Who may install eve, and where it refuses to be installed."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from support.cluster import Cluster, running
from support.roads import left_behind, plain_script, psql, revert_script, schema_text
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


def installer(cluster: Cluster, attributes: str = "") -> None:
    """Role t_installer with a database of its own, road_owned."""
    cluster.drop("road_owned")
    with cluster.connect() as c:
        c.execute("drop role if exists t_installer")
        c.execute(f"create role t_installer login {attributes}".encode())
    cluster.create("road_owned", owner="t_installer")


def test_a_member_of_the_owner_installs_and_reverts(cluster: Cluster, installed: Installed) -> None:
    """The roles are there, the installer is a member of eve_owner and has no other right."""
    expected = schema_text(cluster, installed("plain"))
    installer(cluster)
    with cluster.connect() as c:
        c.execute("grant eve_owner to t_installer")
    psql(cluster, "road_owned", plain_script(), role="t_installer")
    assert schema_text(cluster, "road_owned") == expected
    psql(cluster, "road_owned", revert_script(), role="t_installer")
    assert left_behind(cluster, "road_owned") == []


def test_refuses_an_installer_who_cannot_give_to_the_owner(
    cluster: Cluster, installed: Installed
) -> None:
    assert installed("plain")
    installer(cluster)
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        cluster.load("road_owned", plain_script(), role="t_installer")
    assert refused.value.diag.message_hint == "As a superuser: grant eve_owner to t_installer;"
    assert left_behind(cluster, "road_owned") == []


def test_a_maker_of_roles_installs_and_reverts_in_a_fresh_cluster(
    cluster: Cluster, server: Server, installed: Installed
) -> None:
    """CREATEROLE and a database of one's own are enough; the roles come and go with it."""
    expected = schema_text(cluster, installed("plain"))
    everybody = "select rolname from pg_roles where rolname !~ '^pg_' order by 1"
    with running(server) as fresh:
        installer(fresh, "createrole")
        psql(fresh, "road_owned", plain_script(), role="t_installer")
        assert schema_text(fresh, "road_owned") == expected
        with fresh.connect("road_owned", "t_installer") as c:
            c.execute("select public.eve_create_queue('q', 'safe', 'any')")
            c.execute("select public.eve_submit('q', '{}')")
            granted = c.execute("select granted from public.eve_acquire('q', 'w')").fetchone()
        assert granted == (True,)
        psql(fresh, "road_owned", revert_script(), role="t_installer")
        assert left_behind(fresh, "road_owned") == []
        with fresh.connect() as c:
            assert c.execute(everybody).fetchall() == [("postgres",), ("t_installer",)]


def test_installing_twice_changes_nothing(cluster: Cluster, installed: Installed) -> None:
    database = installed("plain")
    before = schema_text(cluster, database)
    with pytest.raises(psycopg.errors.DuplicateSchema):
        cluster.load(database, plain_script())
    assert schema_text(cluster, database) == before
