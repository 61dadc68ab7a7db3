"""Sqitch, one plain file and CREATE EXTENSION make the same; the core lives without it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.cluster import Cluster
from support.database import Database
from support.roads import (
    PLPYTHON,
    by_extension,
    by_plain,
    by_sqitch,
    contents,
    detach,
    dump,
    left_behind,
    migra,
    plain_script,
    psql,
    revert_script,
    schema_text,
    sqitch,
)

LANGUAGE = "create extension plpython3u"


def sqitch_both(cluster: Cluster, database: str) -> None:
    by_sqitch(cluster, database)
    cluster.load(database, LANGUAGE)
    sqitch(cluster, database, "deploy", "--verify", project=PLPYTHON)


def plain_both(cluster: Cluster, database: str) -> None:
    by_plain(cluster, database)
    cluster.load(database, LANGUAGE)
    psql(cluster, database, plain_script(PLPYTHON))


def extension_both(cluster: Cluster, database: str) -> None:
    by_extension(cluster, database)
    cluster.load(database, "create extension eve_plpython cascade")


ROADS = {"sqitch": sqitch_both, "plain": plain_both, "extension": extension_both}


@pytest.fixture(scope="module")
def both(tongue: Cluster) -> Callable[[str], str]:
    made: set[str] = set()

    def make(road: str) -> str:
        database = f"python_{road}"
        if road not in made:
            tongue.create(database)
            ROADS[road](tongue, database)
            made.add(road)
        return database

    return make


@pytest.fixture
def copy(tongue: Cluster, both: Callable[[str], str]) -> Callable[[str], str]:
    """A copy of one road's database, to be changed."""

    def make(road: str) -> str:
        tongue.drop("python_copy")
        tongue.create("python_copy", both(road))
        return "python_copy"

    return make


def works(cluster: Cluster, database: str) -> None:
    """Work is submitted, done and audited."""
    with closing(Database(cluster, database)) as db:
        db.make_queue("works")
        item = db.call("t_producer", "eve_submit", queue="works", payload={"n": 1}).item
        lease = db.call("t_worker", "eve_acquire", queue="works", worker="w")
        done = db.call("t_worker", "eve_complete", queue="works", item=item, token=lease.token)
        assert (lease.item, done.phase) == (item, "verified")
        assert all(a.clean for a in db.calls("t_auditor", "eve_audit", queue="works"))


def test_plain_equals_sqitch(tongue: Cluster, both: Callable[[str], str]) -> None:
    one, other = both("sqitch"), both("plain")
    assert schema_text(tongue, one) == schema_text(tongue, other)
    assert "eve._plan_faults" in schema_text(tongue, one)
    assert migra(tongue, one, other) == ""


def test_extension_equals_sqitch(
    tongue: Cluster, both: Callable[[str], str], copy: Callable[[str], str]
) -> None:
    one, other = both("sqitch"), copy("extension")
    for extension in ("eve_plpython", "eve"):
        tongue.load(other, detach(extension))
    assert schema_text(tongue, one) == schema_text(tongue, other)
    assert migra(tongue, one, other) == ""


def test_sqitch_verifies(tongue: Cluster, both: Callable[[str], str]) -> None:
    database = both("sqitch")
    assert "Verify successful" in sqitch(tongue, database, "verify", project=PLPYTHON)
    assert "Check successful" in sqitch(tongue, database, "check", project=PLPYTHON)


def test_sqitch_wants_the_core_first(tongue: Cluster) -> None:
    tongue.drop("python_first")
    tongue.create("python_first")
    tongue.load("python_first", LANGUAGE)
    with pytest.raises(AssertionError, match="Missing required change: eve:grants"):
        sqitch(tongue, "python_first", "deploy", project=PLPYTHON)


def test_sqitch_keeps_the_core_while_it_is_needed(
    tongue: Cluster, copy: Callable[[str], str]
) -> None:
    database = copy("sqitch")
    with pytest.raises(AssertionError, match="eve_plpython:ground"):
        sqitch(tongue, database, "revert", "-y")
    works(tongue, database)


def test_revert_leaves_the_core_and_then_nothing(
    tongue: Cluster, copy: Callable[[str], str]
) -> None:
    tongue.drop("python_core")
    tongue.create("python_core")
    by_plain(tongue, "python_core")
    tongue.load("python_core", LANGUAGE)
    database = copy("sqitch")
    sqitch(tongue, database, "revert", "-y", project=PLPYTHON)
    assert schema_text(tongue, database) == schema_text(tongue, "python_core")
    works(tongue, database)
    sqitch(tongue, database, "revert", "-y")
    tongue.load(database, "drop extension plpython3u")
    assert left_behind(tongue, database) == []


def test_the_plain_road_back(tongue: Cluster, copy: Callable[[str], str]) -> None:
    database = copy("plain")
    psql(tongue, database, revert_script(PLPYTHON))
    psql(tongue, database, plain_script(PLPYTHON))
    psql(tongue, database, revert_script(PLPYTHON))
    works(tongue, database)


def test_dropping_the_extension_leaves_the_core_working(
    tongue: Cluster, copy: Callable[[str], str]
) -> None:
    tongue.drop("python_core")
    tongue.create("python_core")
    by_extension(tongue, "python_core")
    database = copy("extension")
    works(tongue, database)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        tongue.load(database, "drop extension eve")
    tongue.load(database, "drop extension eve_plpython; drop extension plpython3u")
    works_again = "python_again"
    tongue.drop(works_again)
    tongue.create(works_again, both_core := "python_core")
    works(tongue, works_again)
    assert schema_text(tongue, database) == schema_text(tongue, both_core)


def test_restored_with_its_answers(tongue: Cluster, copy: Callable[[str], str]) -> None:
    database = copy("extension")
    works(tongue, database)
    tongue.drop("python_back")
    tongue.create("python_back", "template0")
    psql(tongue, "python_back", dump(tongue, database))
    assert contents(tongue, "python_back") == contents(tongue, database)
    with closing(Database(tongue, "python_back")) as db:
        answer = db.call("t_worker", "eve_plan_check", queue="works", plan=Jsonb([{"id": "a"}]))
        assert (answer.ok, answer.seconds) == (True, 1)


def test_who_may_not_install_it(tongue: Cluster) -> None:
    """Python runs as the server's user, so only a superuser brings it."""
    tongue.drop("python_owned")
    with tongue.connect() as c:
        c.execute("drop role if exists t_python")
        c.execute("create role t_python login")
    tongue.create("python_owned", owner="t_python")
    by_plain(tongue, "python_owned")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        tongue.load("python_owned", LANGUAGE, role="t_python")
    tongue.load("python_owned", LANGUAGE)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        tongue.load("python_owned", plain_script(PLPYTHON), role="t_python")
    tongue.drop("python_owned")
    with tongue.connect() as c:
        c.execute("drop role t_python")


def test_the_language_comes_first(tongue: Cluster) -> None:
    tongue.drop("python_bare")
    tongue.create("python_bare")
    by_plain(tongue, "python_bare")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
        tongue.load("python_bare", plain_script(PLPYTHON))
    assert refused.value.diag.message_hint == "As a superuser: create extension plpython3u;"
