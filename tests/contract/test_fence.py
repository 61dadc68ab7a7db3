"""Contract §6: the caller's own writes under its lease, in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from support.database import Connection, Database, Row, call
from support.desk import Desk
from support.session import Session
from support.session import session as open_session


def test_a_fence_proves_a_live_lease_and_writes_nothing(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    before = desk.census()
    answer = desk.hold("eve_fence", lease)
    assert (answer.item, answer.token, answer.expires_at) == (
        lease.item, lease.token, lease.expires_at,
    )  # fmt: skip
    assert answer.cancel_requested is False
    assert desk.census() == before


@pytest.fixture
def session(shared: Database) -> Iterator[Callable[[str], Session]]:
    with ExitStack() as stack:
        yield lambda role: stack.enter_context(open_session(shared, role))


@pytest.mark.parametrize("verb", ["eve_complete", "eve_fail", "eve_return", "eve_cancel",
                                  "eve_reject"])  # fmt: skip
def test_an_end_waits_for_who_fences(
    desk: Desk, session: Callable[[str], Session], verb: str
) -> None:
    """Finishing, cancelling and rejecting wait until the fencing transaction is over."""
    lease = desk.lease(item=desk.item())
    role = {"eve_cancel": "t_operator", "eve_reject": "t_human"}.get(verb, "t_worker")
    more = {"eve_cancel": {}, "eve_reject": {"reason": "no"}}.get(verb, {"token": lease.token})
    writer, ender = session("t_worker"), session(role)
    writer.execute("begin")
    writer.call("eve_fence", queue=desk.queue, item=lease.item, token=lease.token)
    pending = ender.start_call(verb, queue=desk.queue, item=lease.item, **more)
    ender.until_waiting()
    writer.execute("commit")
    assert pending.result(20)
    assert desk.phase(lease.item) != "leased"


def test_a_renewal_passes_and_a_recovery_skips_who_fences(
    desk: Desk, session: Callable[[str], Session]
) -> None:
    lease = desk.lease(item=desk.item())
    writer = session("t_worker")
    writer.execute("begin")
    writer.call("eve_fence", queue=desk.queue, item=lease.item, token=lease.token)
    desk.hold("eve_renew", lease)
    desk.clock.advance(100_000)
    assert desk.sweep().recovered == 0
    assert desk.phase(lease.item) == "leased"
    writer.execute("commit")
    assert desk.sweep().recovered == 1


# --- a fenced table


@pytest.fixture
def output(desk: Desk) -> str:
    """A table of t_operator's, fenced for the desk's queue; workers may write it."""
    name = f"output_{desk.queue}"
    desk.db.rows(
        f"create table public.{name} (item bigint not null, token bigint not null, body text);"
        f"alter table public.{name} owner to t_operator;"
        f"grant select, insert, update, delete, truncate on public.{name} to public"
    )
    desk.db.call("t_operator", "eve_fence_table", queue=desk.queue, target=name,
                 item_column="item", token_column="token")  # fmt: skip
    return name


def test_a_fenced_table_takes_writes_under_a_live_lease_only(desk: Desk, output: str) -> None:
    lease = desk.lease(item=desk.item())
    values = [lease.item, lease.token]

    def write(query: str, parameters: list[object], role: str = "t_worker") -> None:
        desk.db.rows(query, parameters, role=role)

    write(f"insert into {output} values (%s, %s, 'a')", [*values])
    write(f"update {output} set body = 'b' where item = %s", [lease.item])
    with desk.refused("stale_fence"):
        write(f"insert into {output} values (%s, %s, 'a')", [lease.item, lease.token + 1])
    with desk.refused("P0002"):
        write(f"insert into {output} values (%s, 1, 'a')", [10**15])
    with desk.refused("not_lease_holder"):
        write(f"insert into {output} values (%s, %s, 'a')", [*values], "t_worker2")
    with desk.refused("42501"):  # no worker, no lease
        write(f"insert into {output} values (%s, %s, 'a')", [*values], "t_producer")
    desk.complete(lease)
    for query in (f"update {output} set body = 'c'", f"delete from {output}"):
        with desk.refused("not_lease_holder"):
            write(query, [])
    assert desk.db.value(f"select body from {output}") == "b"


def test_a_row_of_a_fenced_table_stays_with_its_item(desk: Desk, output: str) -> None:
    """The next holder writes it under its own token; nobody moves it to another item."""
    desk.approve("cloud", 2)
    item = desk.item()
    first = desk.lease(item=item)
    desk.db.rows(f"insert into {output} values (%s, %s, 'a')", [item, first.token], role="t_worker")
    desk.hold("eve_return", first)
    second = desk.lease(item=item, role="t_worker2")
    with desk.refused("stale_fence"):
        desk.db.rows(f"update {output} set body = 'b'", role="t_worker2")
    desk.db.rows(f"update {output} set token = %s", [second.token], role="t_worker2")
    other = desk.lease(item=desk.item(), role="t_worker2")
    with desk.refused("stale_fence"):
        desk.db.rows(
            f"update {output} set item = %s, token = %s", [other.item, other.token],
            role="t_worker2",
        )  # fmt: skip
    desk.db.rows(f"delete from {output}", role="t_worker2")


def copy_in(connection: Connection, table: str, text: str) -> None:
    with connection.cursor().copy(f"copy {table} from stdin".encode()) as copy:
        copy.write(text)


def test_a_fenced_table_refuses_truncate_and_tricks(desk: Desk, output: str) -> None:
    lease = desk.lease(item=desk.item())
    desk.db.rows(
        f"insert into {output} values (%s, %s, 'a')", [lease.item, lease.token], role="t_worker"
    )
    for role in ("t_worker", "t_operator", "postgres"):
        with desk.refused("55000"):
            desk.db.rows(f"truncate {output}", role=role)
    with desk.refused("P0002"):
        desk.db.rows(f"insert into {output} values (null, null, 'a')", role="t_worker")
    copied = f"{lease.item}\t{lease.token + 1}\ta\n"
    with desk.refused("stale_fence"):
        copy_in(desk.db.connect("t_worker"), output, copied)
    connection = desk.db.connect("postgres")
    connection.execute("set session_replication_role = replica")
    with pytest.raises(psycopg.Error):
        connection.execute(f"delete from {output}".encode())
    desk.db.rows(f"delete from {output}", role="t_worker")


def test_a_fenced_write_holds_the_lease_until_its_commit(desk: Desk, output: str) -> None:
    """The write and the lease cannot come apart: recovery skips, then finds it."""
    lease = desk.lease(item=desk.item())
    connection = desk.db.connect("t_worker", autocommit=False)
    connection.execute(
        f"insert into {output} values (%s, %s, 'a')".encode(), [lease.item, lease.token]
    )
    desk.clock.advance(100_000)
    assert desk.sweep().recovered == 0
    connection.commit()
    assert desk.sweep().recovered == 1


def test_only_the_owner_who_operates_the_queue_fences_a_table(desk: Desk) -> None:
    desk.db.rows("create table public.theirs (item bigint not null, token bigint not null)")
    try:
        arguments = {"target": "theirs", "item_column": "item", "token_column": "token"}
        with desk.refused("42501"):  # an operator, but not the owner
            desk.call("t_operator", "eve_fence_table", **arguments)
        desk.db.rows("alter table public.theirs owner to t_worker")
        with desk.refused("42501"):  # the owner, but no operator
            desk.call("t_worker", "eve_fence_table", **arguments)
        assert not desk.db.rows("select 1 from pg_trigger where tgrelid = 'theirs'::regclass")
    finally:
        desk.db.rows("drop table public.theirs")


def test_a_table_is_fenced_once(desk: Desk, output: str) -> None:
    with desk.refused("42710"):
        desk.call("t_operator", "eve_fence_table", target=output, item_column="item",
                  token_column="token")  # fmt: skip


# --- batches and turns


def shown(rows: list[Row]) -> list[tuple[object, ...]]:
    return [(r.item, r.accepted, r.refusal) for r in rows]


def test_a_batch_answers_in_the_order_given(desk: Desk) -> None:
    """Live, lapsed by another, stale, unknown and repeated: one row each, none spoils another."""
    desk.approve("cloud", 4)
    for _ in range(4):
        desk.item()
    a, b, c, d = desk.leases(4)
    desk.complete(d, result={"n": 4})
    order = [(c, c.token), (a, a.token + 5), (d, d.token), (b, b.token), (b, b.token)]
    rows = desk.calls(
        "t_worker", "eve_complete_batch",
        items=[lease.item for lease, _ in order] + [10**15], tokens=[t for _, t in order] + [1],
    )  # fmt: skip
    assert shown(rows) == [
        (c.item, True, None),
        (a.item, False, "stale_fence"),
        (d.item, False, "idempotency_conflict"),
        (b.item, True, None),
        (b.item, True, None),
        (10**15, False, "stale_fence"),
    ]
    assert [row.replayed for row in rows[3:5]] == [False, True]
    assert desk.live() == 1


def test_results_of_a_batch_go_with_their_items(desk: Desk) -> None:
    desk.approve("cloud", 3)
    for _ in range(3):
        desk.item()
    leases = desk.leases(3)[::-1]
    desk.calls(
        "t_worker", "eve_complete_batch", items=[x.item for x in leases],
        tokens=[x.token for x in leases],
        results=[psycopg.types.json.Jsonb({"of": x.item}) for x in leases],
    )  # fmt: skip
    for lease in leases:
        assert desk.call("t_auditor", "eve_item", item=lease.item).result == {"of": lease.item}


def test_a_turn_finishes_and_leases_in_one_commit(desk: Desk) -> None:
    """With the one local slot: handed over, never free in between."""
    items = [desk.item() for _ in range(3)]
    (first,) = desk.calls("t_worker", "eve_turn", worker="w")
    assert (first.part, first.granted, first.item) == ("acquire", True, items[0])
    rows = desk.calls("t_worker", "eve_turn", worker="w", items=[first.item], tokens=[first.token])
    assert [(r.part, r.item, r.accepted, r.granted) for r in rows] == [
        ("finish", items[0], True, None),
        ("acquire", items[1], None, True),
    ]
    assert desk.live() == 1


def test_a_turn_with_a_refused_finish_still_looks_for_work(desk: Desk) -> None:
    desk.approve("cloud", 2)
    for _ in range(2):
        desk.item()
    lease = desk.lease()
    rows = desk.calls("t_worker", "eve_turn", worker="w", items=[lease.item], tokens=[99])
    assert [(r.refusal, r.granted) for r in rows] == [("stale_fence", None), (None, True)]
    with desk.refused("stale_fence"):
        desk.calls("t_worker", "eve_turn", worker="w", items=[lease.item], tokens=[99],
                   all_or_nothing=True)  # fmt: skip


def test_an_empty_turn_says_when_to_come_again(desk: Desk) -> None:
    desk.item(not_before="2099-01-01 00:00Z")
    (row,) = desk.calls("t_worker", "eve_turn", worker="w")
    assert (row.granted, row.refusal, row.next_at.year) == (False, None, 2099)


def test_a_thousand_at_once(desk: Desk) -> None:
    """The limits are what they say: 1000 pass, 1001 do not."""
    desk.approve("cloud", 1024)
    desk.db.rows(
        "select count(eve_submit(%s)) from generate_series(1, 1000)", [desk.queue],
        role="t_producer",
    )  # fmt: skip
    leases = desk.leases(1000)
    rows = desk.calls(
        "t_worker", "eve_complete_batch",
        items=[x.item for x in leases], tokens=[x.token for x in leases],
    )  # fmt: skip
    assert [r.phase for r in rows] == ["verified"] * 1000
    with desk.refused("22023"):
        call(desk.db.kept("t_worker"), "eve_acquire", queue=desk.queue, worker="w", max_items=1001)
