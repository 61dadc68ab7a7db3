"""Dump, restore, go on: rows, sequences, live leases and tokens survive on each road."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from support.cluster import FAST, Cluster, running
from support.database import Database
from support.roads import contents, dump, pg_restore, psql, roles_script
from support.servers import Server

Installed = Callable[[str], str]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Callable[[Server], Cluster]]:
    """Another cluster of the same server, without any role of eve until a roles script ran."""
    made: dict[Server, Cluster] = {}

    def other(server: Server) -> Cluster:
        if server not in made:
            made[server] = Cluster(server, FAST)
        return made[server]

    yield other
    for cluster in made.values():
        cluster.remove()


def live(cluster: Cluster, database: str) -> tuple[int, int]:
    """Some history with a lease in the air; gives that lease's item and token."""
    with closing(Database(cluster, database)) as db:
        db.make_queue("q")
        for n in range(5):
            db.call("t_producer", "eve_submit", queue="q", payload={"n": n}, work_id=f"w{n}")
        first = db.call("t_worker", "eve_acquire", queue="q", worker="w")
        db.call("t_worker", "eve_complete",
                queue="q", item=first.item, token=first.token, result={"ok": True})  # fmt: skip
        second = db.call("t_worker", "eve_acquire", queue="q", worker="w", idempotency_key="k")
        db.call("t_producer", "eve_submit",
                queue="q", payload={}, work_id="child", after=[second.work_id])  # fmt: skip
        return second.item, second.token


def goes_on(cluster: Cluster, database: str, item: int, token: int) -> None:
    """The restored database is clean, its lease can be finished, and new work gets new numbers."""
    with closing(Database(cluster, database)) as db:
        assert all(a.clean for a in db.calls("postgres", "eve_audit"))
        again = db.call("t_worker", "eve_acquire", queue="q", worker="w", idempotency_key="k")
        assert (again.item, again.token, again.replayed) == (item, token, True)
        with db.refused("stale_fence"):
            db.call("t_worker", "eve_complete", queue="q", item=item, token=token + 1)
        full = db.call("t_worker", "eve_acquire", queue="q", worker="w2")
        assert full.refusal == "concurrency_exhausted"
        done = db.call("t_worker", "eve_complete", queue="q", item=item, token=token)
        assert done.phase == "verified"
        child = "select item, status from eve.item_status where work_id = 'child'"
        assert db.row(child).status == "ready"
        new = db.call("t_producer", "eve_submit", queue="q", payload={}, work_id="new")
        assert new.item > db.value("select max(item) from eve.intent where work_id <> 'new'")
        drained = 0
        while (got := db.call("t_worker", "eve_acquire", queue="q", worker="w")).granted:
            db.call("t_worker", "eve_complete", queue="q", item=got.item, token=got.token)
            drained += 1
        assert drained == 5
        for audit in db.calls("postgres", "eve_audit"):
            assert (audit.clean, audit.replay, audit.chain) == (True, "equal", "intact")


@pytest.mark.parametrize("road", ["plain", "extension"])
def test_restored_beside_it(cluster: Cluster, installed: Installed, road: str) -> None:
    for name in ("road_live", "road_back"):
        cluster.drop(name)
    cluster.create("road_live", installed(road))
    item, token = live(cluster, "road_live")
    before = contents(cluster, "road_live")
    cluster.create("road_back", "template0")
    psql(cluster, "road_back", dump(cluster, "road_live"))
    assert contents(cluster, "road_back") == before
    goes_on(cluster, "road_back", item, token)


@pytest.mark.parametrize("road", ["plain", "extension"])
def test_restored_into_a_fresh_cluster(
    cluster: Cluster,
    installed: Installed,
    server: Server,
    elsewhere: Callable[[Server], Cluster],
    road: str,
) -> None:
    cluster.drop("road_live")
    cluster.create("road_live", installed(road))
    item, token = live(cluster, "road_live")
    other = elsewhere(server)
    if not other.has_role("eve_owner"):
        psql(other, "postgres", roles_script(cluster))
    name = f"road_{road}"
    other.create(name, "template0")
    psql(other, name, dump(cluster, "road_live"))
    assert contents(other, name) == contents(cluster, "road_live")
    goes_on(other, name, item, token)


@pytest.mark.parametrize("road", ["plain", "extension"])
def test_restored_in_parallel(cluster: Cluster, installed: Installed, road: str) -> None:
    for name in ("road_live", "road_back"):
        cluster.drop(name)
    cluster.create("road_live", installed(road))
    item, token = live(cluster, "road_live")
    folder = cluster.home / f"dump-{road}"
    cluster.client("pg_dump", ["-Fd", "-j", "2", "-f", folder], "road_live")
    cluster.create("road_back", "template0")
    pg_restore(cluster, "road_back", "-j", "2", folder)
    assert contents(cluster, "road_back") == contents(cluster, "road_live")
    goes_on(cluster, "road_back", item, token)


def test_rows_alone_into_an_installed_extension(cluster: Cluster, installed: Installed) -> None:
    """The guards and the fold let restored rows pass; switched off, the audit says so."""
    for name in ("road_live", "road_back", "road_off"):
        cluster.drop(name)
    for name in ("road_live", "road_back", "road_off"):
        cluster.create(name, installed("extension"))
    item, token = live(cluster, "road_live")
    psql(cluster, "road_back", dump(cluster, "road_live", "--data-only"))
    assert contents(cluster, "road_back") == contents(cluster, "road_live")
    goes_on(cluster, "road_back", item, token)
    psql(cluster, "road_off", dump(cluster, "road_live", "--data-only", "--disable-triggers"))
    assert contents(cluster, "road_off") == contents(cluster, "road_live")
    with closing(Database(cluster, "road_off")) as db:
        (audit,) = db.calls("postgres", "eve_audit")
        faults = {fault["fault"] for fault in audit.faults}
        assert not audit.clean
        assert {"trigger off: ledger_fold", "trigger off: ledger_guard_row"} <= faults


def test_a_dump_alone_needs_the_roles(
    cluster: Cluster, installed: Installed, server: Server
) -> None:
    with running(server) as other:
        text = dump(cluster, installed("plain"))
        with pytest.raises(AssertionError, match='role "eve_owner" does not exist'):
            psql(other, "postgres", text)
