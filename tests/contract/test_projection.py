"""E-077 … E-079, and the walls around ledger, intent and projection; a superuser meets them."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from support.database import Database
from support.desk import Desk
from support.servers import ROOT


def test_e_077_the_projection_column_is_work_item_queue_state(shared: Database) -> None:
    column = shared.row(
        "select format_type(atttypid, atttypmod) as type, attnotnull from pg_attribute"
        " where attrelid = 'eve.work_item'::regclass and attname = 'queue_state'"
    )
    assert tuple(column) == ("eve.state", True)


SHAPELESS = [
    "phase = null", "phase = 'sleeping'", "phase = ''", "version = null", "version = 0",
    "version = -1", "at = null", "at = 'infinity'", "at = '-infinity'", "attempts = null",
    "attempts = -1", "allowance = -1", "allowance = null", "credits = -1", "credits = null",
    "token = null", "token = -1", "token = 9007199254740992", "rank = null", "rank = -1",
    "rank = 4", "effect_started = null", "cancel_requested = null",
]  # fmt: skip
SHAPELESS_READY = ["ready_since = null", "late = null", "principal = 'x'", "worker = 'x'",
                   "pool = 'x'", "slot = 1", "expires_at = now()", "acquired_at = now()",
                   "phase = 'leased'"]  # fmt: skip
SHAPELESS_LEASED = ["principal = null", "worker = null", "pool = null", "slot = null",
                    "acquired_at = null", "expires_at = null", "token = 0", "attempts = 0",
                    "phase = 'ready'", "phase = 'verified'"]  # fmt: skip


def test_e_078_a_malformed_state_cannot_be_stored_by_any_client(desk: Desk) -> None:
    """The superuser's UPDATE and INSERT meet the constraint as well; nulls do not slip through."""
    ready = desk.item()
    leased = desk.lease(item=desk.item()).item
    cases = [(ready, change) for change in SHAPELESS + SHAPELESS_READY]
    cases += [(leased, change) for change in SHAPELESS + SHAPELESS_LEASED]
    for item, change in cases:
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            desk.db.rows(
                f"update eve.work_item set queue_state.{change} where queue_id = %s and item = %s",
                [desk.id, item],
            )
        assert refused.value.diag.constraint_name == "work_item_queue_state_shape", change
    for value in ("null", "row(null)::eve.state", "null::eve.state"):
        nulls = value.replace("row(null)", f"row({', '.join(['null'] * attributes(desk.db))})")
        with pytest.raises(psycopg.errors.IntegrityError):
            desk.db.rows(
                "insert into eve.work_item"
                f" values (%s, 999, 1, 1, 1, false, false, false, {nulls}, '\\x00')",
                [desk.id],
            )
    with pytest.raises(psycopg.errors.CheckViolation):
        desk.db.rows(
            "update eve.work_item set queue_state.expires_at = (queue_state).acquired_at"
            " where queue_id = %s and item = %s",
            [desk.id, leased],
        )


def attributes(db: Database) -> int:
    return int(
        db.value(
            "select count(*) from pg_attribute"
            " where attrelid = 'eve.state'::regclass and attnum > 0"
        )
    )


def test_e_078_nor_one_of_the_queue_itself(desk: Desk) -> None:
    for change in ("phase = 'ready'", "token = 1", "attempts = 0", "version = null"):
        with pytest.raises(psycopg.errors.CheckViolation):
            desk.db.rows(
                f"update eve.work_item set queue_state.{change} where queue_id = %s and item = 0",
                [desk.id],
            )


def test_e_079_the_table_says_which_semantic_lives_where(shared: Database) -> None:
    """Eleven, each in a layer and in a file that exists and defines what enforces it."""
    rows = shared.rows("select * from eve.semantic")
    assert len(rows) == 11
    assert {row.layer for row in rows} == {"decision", "store", "both"}
    for row in rows:
        assert (ROOT / f"sql/{row.home}.sql").exists(), row.semantic
        room = row.home.split("/")[0]
        if row.layer == "decision":
            assert room in ("acquire", "admit", "lease"), row.semantic
        if row.layer == "store":
            assert room in ("fold", "ledger", "lease", "item", "queue"), row.semantic
    comment = shared.value("select obj_description('eve.semantic'::regclass)")
    assert "decision" in comment
    assert "store" in comment


# --- the walls

WAYS = ["update eve.{t} set queue_id = queue_id", "delete from eve.{t}", "truncate eve.{t}",
        "truncate eve.{t} cascade"]  # fmt: skip


@pytest.mark.parametrize("table", ["ledger", "submission", "intent"])
@pytest.mark.parametrize("replica", [False, True], ids=["origin", "replica"])
def test_append_only_tables_refuse_even_the_superuser(
    desk: Desk, table: str, replica: bool
) -> None:
    """Also in a session that plays a replica: the guards are ENABLE ALWAYS."""
    desk.item()
    desk.submit(deadline="2001-01-01Z")
    connection = desk.db.connect("postgres")
    if replica:
        connection.execute("set session_replication_role = replica")
    for way in WAYS:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
            connection.execute(way.format(t=table).encode())
        assert refused.value.diag.message_hint
    merge = sql.SQL(
        "merge into eve.{t} as t using (select 1) as s (x) on true when matched then delete"
    )
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        connection.execute(merge.format(t=sql.Identifier(table)))


@pytest.mark.parametrize("replica", [False, True], ids=["origin", "replica"])
def test_the_fold_runs_in_a_replica_session_too(desk: Desk, replica: bool) -> None:
    """What session_replication_role = replica does not switch off: folding and the shape."""
    item = desk.item()
    connection = desk.db.connect("postgres")
    if replica:
        connection.execute("set session_replication_role = replica")
    connection.execute(
        "insert into eve.ledger (queue_id, item, kind, at, actor, principal, epoch, rank)"
        " values (%s, %s, 'reprioritised', eve.now(), 'postgres', 'postgres', 0, 0)",
        [desk.id, item],
    )
    assert desk.state(item).rank == 0
    assert desk.state(item).version == 2


def test_an_event_of_no_known_kind_or_shape_cannot_be_stored(desk: Desk) -> None:
    """Folded or not, with a version or without."""
    item = desk.item()
    for version, kind, at, rank in (
        (7, "exploded", "now()", "null"),
        (0, "renewed", "now()", "null"),
        (7, "renewed", "'infinity'", "null"),
        (7, "renewed", "now()", "4"),
        (7, "halted", "now()", "null"),
    ):
        with pytest.raises(psycopg.errors.CheckViolation):
            desk.db.rows(
                "insert into eve.ledger (queue_id, item, version, kind, at, actor, principal,"
                f" epoch, rank, hash) values (%s, %s, %s, %s, {at}, 'x', 'x', 0, {rank},"
                " sha256(''))",
                [desk.id, item, version, kind],
            )
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        desk.db.rows(
            "insert into eve.ledger (queue_id, item, kind, at, actor, principal, epoch)"
            " values (%s, %s, 'verified', eve.now(), 'x', 'x', 0)",
            [desk.id, item],
        )


def test_an_intent_loses_its_payload_and_nothing_else(desk: Desk) -> None:
    """The one change there is, by a purge: setting it to null. Others are refused, not ignored."""
    item = desk.item(payload={"n": 1}, work_id="a")
    here = " where queue_id = %s and item = %s"
    for change in (
        "payload = '{\"n\": 2}'",
        "payload = payload",
        "payload = null, payload_size = 0",
        "work_id = 'b'",
        "deadline = now()",
        "principal = 'somebody'",
        "payload_digest = sha256('')",
    ):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            desk.db.rows(f"update eve.intent set {change}{here}", [desk.id, item])
    assert desk.call("t_auditor", "eve_item", item=item).payload == {"n": 1}
    desk.db.rows(f"update eve.intent set payload = null{here}", [desk.id, item])
    read = desk.call("t_auditor", "eve_item", item=item)
    assert (read.payload, read.work_id) == (None, "a")
    assert desk.audit().clean
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        desk.db.rows(f"update eve.intent set payload = '{{}}'{here}", [desk.id, item])


def test_who_tampers_with_the_guards_off_is_found_by_the_audit(desk: Desk) -> None:
    """What a superuser can still do is seen: a changed, a removed and an inserted event."""
    desk.spoiled = True
    db = desk.db
    items = [desk.done() for _ in range(4)]
    assert desk.audit().clean
    db.rows("alter table eve.ledger disable trigger ledger_guard_row")
    try:
        faults = desk.audit().faults
        assert {"fault": "trigger off: ledger_guard_row", "item": None} in faults
        db.rows("update eve.ledger set reason = 'forged' where item = %s and version = 2",
                [items[0]])  # fmt: skip
        db.rows("delete from eve.ledger where item = %s and version = 2", [items[1]])
        db.rows("delete from eve.ledger where item = %s and version = 3", [items[2]])
        db.rows("update eve.ledger set at = at + interval '1 s' where item = %s and version = 3",
                [items[3]])  # fmt: skip
    finally:
        db.rows("alter table eve.ledger enable always trigger ledger_guard_row")
    audit = desk.audit()
    assert (audit.clean, audit.chain) == (False, "broken")
    broken = {(f["item"], f["version"]) for f in audit.faults if f["fault"] == "chain"}
    assert {item for item, _ in broken} == set(items)


def test_an_ordinary_trigger_setting_is_a_fault(desk: Desk) -> None:
    """ENABLE TRIGGER ALL turns ALWAYS off quietly; the audit says so."""
    desk.db.rows("alter table eve.ledger enable trigger ledger_fold")
    try:
        assert not desk.audit().clean
    finally:
        desk.db.rows("alter table eve.ledger enable always trigger ledger_fold")
