"""No caller passes for another: roles, paths, temporary objects, settings, wrappers, principals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from support.database import Connection, Database, call
from support.desk import Desk
from support.world import World


@pytest.fixture
def gateway(shared: Database) -> str:
    """A login of a gateway: it may become t_worker and t_human, and inherits neither."""
    name = f"t_gateway{shared.cluster.server.major}"
    if not shared.value("select 1 from pg_roles where rolname = %s", [name]):
        shared.rows(f"create role {name} login noinherit")
        if shared.cluster.server.major >= 16:
            shared.rows(f"grant t_worker, t_human to {name} with inherit false, set true")
        else:
            shared.rows(f"grant t_worker, t_human to {name}")
    return name


def actor(desk: Desk, item: int) -> tuple[str, str]:
    event = desk.events(item)[-1]
    return event.actor, event.principal


# --- SET ROLE and SET SESSION AUTHORIZATION


def test_the_actor_is_the_role_that_was_set(desk: Desk, gateway: str) -> None:
    """A gateway is nobody by itself, and its caller after SET LOCAL ROLE, in that transaction."""
    item = desk.item()
    connection = desk.db.connect(gateway)
    with desk.refused("42501"):
        call(connection, "eve_acquire", queue=desk.queue, worker="w", item=item)
    with connection.transaction():
        connection.execute("set local role t_worker")
        assert call(connection, "eve_acquire", queue=desk.queue, worker="w")[0].granted
    assert actor(desk, item) == ("t_worker", "t_worker")
    with desk.refused("42501"):
        call(connection, "eve_fence", queue=desk.queue, item=item, token=1)
    with connection.transaction():
        connection.execute("select set_config('role', 't_human', true)")
        call(connection, "eve_reject", queue=desk.queue, item=item, reason="no")
    assert actor(desk, item) == ("t_human", "t_human")


@pytest.mark.parametrize(
    "statement",
    [
        "set role t_human", "set local role t_human", "select set_config('role', 't_human', false)",
        "set session authorization t_human", "set role eve_human", "set role eve_owner",
        "set role postgres",
    ],
)  # fmt: skip
def test_a_worker_becomes_nobody_else(desk: Desk, statement: str) -> None:
    """PostgreSQL refuses the setting; the caller goes on as what it is."""
    item = desk.item()
    connection = desk.db.connect("t_worker")
    with pytest.raises(psycopg.Error) as refused:
        connection.execute(statement.encode())
    assert refused.value.sqlstate in ("42501", "22023")
    with desk.refused("terminal_state_not_owned"):
        call(connection, "eve_reject", queue=desk.queue, item=item, reason="no")
    call(connection, "eve_acquire", queue=desk.queue, worker="w", item=item)
    assert actor(desk, item) == ("t_worker", "t_worker")


def test_a_setting_of_a_login_makes_it_nobody_else(desk: Desk) -> None:
    """What a role may write down for its next sessions is judged when they begin."""
    item = desk.item()
    desk.db.rows("alter role t_worker set role = 't_human'", role="t_worker")
    try:
        connection = desk.db.connect("t_worker")
        connection.execute("update pg_settings set setting = 't_human' where name = 'role'")
        with desk.refused("terminal_state_not_owned"):
            call(connection, "eve_reject", queue=desk.queue, item=item, reason="no")
        call(connection, "eve_acquire", queue=desk.queue, worker="w", item=item)
    finally:
        desk.db.rows("alter role t_worker reset role")
    assert actor(desk, item) == ("t_worker", "t_worker")


def test_a_superuser_who_becomes_another_is_that_other(desk: Desk) -> None:
    """SET SESSION AUTHORIZATION is a superuser's alone; the actor is who it became."""
    item = desk.item()
    connection = desk.db.connect("postgres")
    connection.execute("set session authorization t_worker")
    call(connection, "eve_acquire", queue=desk.queue, worker="w", item=item)
    assert actor(desk, item) == ("t_worker", "t_worker")
    with desk.refused("terminal_state_not_owned"):
        call(connection, "eve_reject", queue=desk.queue, item=item, reason="no")
    connection.execute("reset session authorization")
    connection.execute("set role t_producer")
    with desk.refused("42501"):
        call(connection, "eve_fence", queue=desk.queue, item=item, token=1)


def test_a_role_that_is_gone_counts_as_nobody(desk: Desk) -> None:
    """Dropped after it was set: the session's own role is the actor, and may nothing more."""
    db = desk.db
    db.rows("create role t_passing")
    db.rows("grant t_passing to t_nobody")
    connection = db.connect("t_nobody")
    connection.execute("set role t_passing")
    db.rows("drop role t_passing")
    with pytest.raises(psycopg.Error) as refused:
        call(connection, "eve_contract")
    assert refused.value.sqlstate in ("42501", "XX000", "42704")


# --- search_path, temporary and shadowing objects


HOSTILE = """
create temp table queue (name text, queue_id bigint);
create temp table access (role text);
create temp table ledger (item bigint);
create temp table held_slot (item bigint, token bigint);
create temp table pg_roles (rolname name, oid oid, rolsuper boolean);
create temp table pg_auth_members (roleid oid, member oid);
create temp view pg_class as select 1 as oid;
create function pg_temp.now() returns timestamptz language sql
    as 'select ''2001-01-01''::timestamptz';
create function pg_temp.pg_has_role(name, name, text) returns boolean language sql as 'select true';
create function pg_temp.current_setting(text) returns text language sql as 'select ''t_human''';
create function pg_temp._actor() returns text language sql as 'select ''t_human''';
create function pg_temp.equal(text, text) returns boolean language sql as 'select true';
create operator pg_temp.= (leftarg = text, rightarg = text, procedure = pg_temp.equal);
create operator pg_temp.<> (leftarg = text, rightarg = text, procedure = pg_temp.equal);
create type pg_temp.caller as (actor text);
create domain pg_temp.text as pg_catalog.text;
set search_path to pg_temp, hostile, public, pg_catalog;
"""
IN_A_SCHEMA = """
create schema if not exists hostile;
grant usage on schema hostile to public;
create or replace function hostile.yes(text, text) returns boolean language sql as 'select true';
create or replace function hostile.pg_has_role(name, name, text) returns boolean language sql
    as 'select true';
create or replace function hostile.eve_fence(text, bigint, bigint) returns void language sql
    as 'select null';
create or replace function hostile.upper(text) returns text language sql as 'select ''t_human''';
do $$ begin
    if not exists (select from pg_operator where oprnamespace = 'hostile'::regnamespace) then
        create operator hostile.= (leftarg = text, rightarg = text, procedure = hostile.yes);
        create operator hostile.<> (leftarg = text, rightarg = text, procedure = hostile.yes);
    end if;
end $$;
"""


@pytest.fixture
def shadowed(desk: Desk) -> Iterator[Connection]:
    """A worker's session in which everything that eve could stumble over is shadowed."""
    desk.db.rows(IN_A_SCHEMA)
    desk.db.rows(f'grant temporary on database "{desk.db.name}" to t_worker')
    connection = desk.db.connect("t_worker")
    connection.execute(HOSTILE)
    yield connection
    desk.db.rows("drop schema hostile cascade")


def test_shadowing_objects_deceive_no_verb(desk: Desk, shadowed: Connection) -> None:
    item = desk.item()
    other = Desk(desk.db, desk.db.make_queue(f"{desk.queue}-other", access=False))
    for verb, arguments in (
        ("eve_reject", {"item": item, "reason": "no"}), ("eve_unpark", {"item": item}),
        ("eve_resume", {}), ("eve_verify", {"item": item}),
    ):  # fmt: skip
        with desk.refused("terminal_state_not_owned"):
            call(shadowed, verb, queue=desk.queue, **arguments)
    with desk.refused("42501"):
        call(shadowed, "eve_halt", queue=desk.queue)
    with desk.refused("P0002"):
        call(shadowed, "eve_acquire", queue=other.queue, worker="w")
    lease = call(shadowed, "eve_acquire", queue=desk.queue, worker="w")[0]
    assert lease.granted
    assert lease.expires_at.year > 2001
    assert actor(desk, item) == ("t_worker", "t_worker")
    with desk.refused("stale_fence"):
        call(shadowed, "eve_complete", queue=desk.queue, item=item, token=7)
    done = call(shadowed, "eve_complete", queue=desk.queue, item=item, token=lease.token)[0]
    assert done.phase == "verified"


def test_every_verb_answers_the_same_in_a_hostile_session(world: World) -> None:
    """Each verb for its own role, plainly and with the path bent: one outcome."""
    db = world.db
    db.rows(IN_A_SCHEMA)
    try:
        for verb in world.verbs:
            role, arguments = world.valid(verb)
            said = []
            for bent in (False, True):
                with world.rolled_back(role) as connection:
                    if bent:
                        connection.execute("set local search_path to hostile, public, pg_catalog")
                    answers = call(connection, verb, **arguments)
                    said.append([type(a)._fields for a in answers] and [
                        (getattr(a, "done", None), getattr(a, "phase", None),
                         getattr(a, "refusal", None)) for a in answers
                    ])  # fmt: skip
            assert said[0] == said[1], verb
    finally:
        db.rows("drop schema hostile cascade")


@pytest.mark.parametrize(
    "setting",
    [
        "eve.actor = 't_human'", "eve.role = 't_human'", "eve.principal = 't_human'",
        "app.who = 't_human'", "request.jwt.claims = '{\"role\": \"t_human\"}'",
        "application_name = 't_human'", "session_replication_role = replica",
        "is_superuser = on", "role = 't_human'", "session_authorization = 't_human'",
        "row_security = off", "check_function_bodies = off", "standard_conforming_strings = off",
        "datestyle = 'sql, dmy'", "intervalstyle = sql_standard", "timezone = 'Asia/Kathmandu'",
        "synchronous_commit = off", "default_transaction_read_only = off",
        "plpgsql.variable_conflict = use_column", "plan_cache_mode = force_custom_plan",
    ],
)  # fmt: skip
def test_no_setting_carries_authority(desk: Desk, setting: str) -> None:
    """Refused by PostgreSQL, or set and without meaning."""
    item = desk.item()
    connection = desk.db.connect("t_worker")
    with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.CantChangeRuntimeParam,
                  psycopg.errors.InvalidParameterValue):  # fmt: skip
        connection.execute(f"set {setting}".encode())
    with desk.refused("terminal_state_not_owned"):
        call(connection, "eve_reject", queue=desk.queue, item=item, reason="no")
    connection.execute("select from eve_acquire(%s, 'w', item => %s)", [desk.queue, item])
    assert actor(desk, item) == ("t_worker", "t_worker")
    assert desk.phase(item) == "leased"


def test_a_worker_label_is_never_checked_and_never_authority(desk: Desk) -> None:
    lease = desk.lease(item=desk.item(), worker="t_human")
    assert desk.state(lease.item).worker == "t_human"
    assert actor(desk, lease.item) == ("t_worker", "t_worker")


# --- SECURITY DEFINER wrappers


@pytest.fixture
def wrapper(shared: Database) -> str:
    """An application's function, owned by a role that may execute everything of eve."""
    if not shared.value("select 1 from pg_roles where rolname = 't_app'"):
        shared.rows("create role t_app in role eve_human, eve_worker, eve_producer, eve_operator")
    shared.rows(
        """
        create schema if not exists app;
        grant usage on schema app to public;
        create or replace function app.reject(queue text, item bigint) returns text
        language sql security definer set search_path = pg_catalog, pg_temp
        begin atomic; select phase from public.eve_reject(queue, item, 'by the app'); end;
        create or replace function app.start(queue text) returns bigint
        language sql security definer set search_path = pg_catalog, pg_temp
        begin atomic; select item from public.eve_acquire(queue, 'app'); end;
        alter function app.reject(text, bigint) owner to t_app;
        alter function app.start(text) owner to t_app;
        """
    )
    return "app"


def test_a_wrapper_lends_its_execute_right_and_nothing_else(desk: Desk, wrapper: str) -> None:
    """EXECUTE is judged for its owner; access and capability for who called it."""
    item = desk.item()
    desk.call("t_operator", "eve_grant_access", role="t_app", capability="human")
    for login, code in (
        ("t_producer", "terminal_state_not_owned"), ("t_worker", "terminal_state_not_owned"),
        ("t_nobody", "P0002"),
    ):  # fmt: skip
        with desk.refused(code):
            desk.db.rows(f"select {wrapper}.reject(%s, %s)", [desk.queue, item], role=login)
    for login in ("t_producer", "t_nobody"):
        code = "42501" if login == "t_producer" else "P0002"
        with desk.refused(code):
            desk.db.rows(f"select {wrapper}.start(%s)", [desk.queue], role=login)
    started = desk.db.value(f"select {wrapper}.start(%s)", [desk.queue], role="t_worker")
    assert started == item
    assert actor(desk, item) == ("t_worker", "t_worker")
    assert desk.db.value(f"select {wrapper}.reject(%s, %s)", [desk.queue, item], role="t_human")
    assert actor(desk, item) == ("t_human", "t_human")


# --- principals


def test_a_principal_unites_rotating_logins(desk: Desk) -> None:
    """Leases and keys belong to the principal; the raw role stays in the event."""
    for login in ("t_worker", "t_worker2"):
        desk.call("t_operator", "eve_grant_access", role=login, capability="worker",
                  principal="payments")  # fmt: skip
    lease = desk.lease(role="t_worker", item=desk.item())
    desk.hold("eve_renew", lease, role="t_worker2")
    assert desk.complete(lease, role="t_worker2").accepted
    events = desk.events(lease.item)[1:]
    assert {(e.actor, e.principal) for e in events} == {
        ("t_worker", "payments"), ("t_worker2", "payments"),
    }  # fmt: skip


def test_a_principal_is_given_by_an_operator_only(desk: Desk) -> None:
    for role in ("t_producer", "t_worker", "t_verifier", "t_human", "t_auditor"):
        with desk.refused("42501"):
            desk.db.call(
                role, "eve_grant_access", queue=desk.queue, role="t_worker", capability="worker",
                principal="t_worker2",
            )  # fmt: skip


def test_a_row_for_a_login_goes_before_one_for_its_group(desk: Desk) -> None:
    desk.call("t_operator", "eve_grant_access", role="eve_worker", capability="worker",
              principal="everybody")  # fmt: skip
    first = desk.lease(role="t_worker", item=desk.item())
    assert actor(desk, first.item) == ("t_worker", "everybody")
    assert desk.complete(first, role="t_worker2").accepted
    desk.call("t_operator", "eve_grant_access", role="t_worker", capability="worker",
              principal="alone")  # fmt: skip
    second = desk.lease(role="t_worker", item=desk.item())
    assert actor(desk, second.item) == ("t_worker", "alone")
    with desk.refused("not_lease_holder"):
        desk.complete(second, role="t_worker2")


def test_a_child_is_submitted_as_the_principal_that_holds_the_lease(desk: Desk) -> None:
    """An actor has one name in a queue, whatever the verb, though its rows give it two."""
    db = desk.db
    if not db.value("select 1 from pg_roles where rolname = 't_names'"):
        db.rows("create role t_names login in role eve_worker, eve_operator")
    for capability, principal in (("worker", "hands"), ("operator", "head")):
        desk.call("t_operator", "eve_grant_access", role="t_names", capability=capability,
                  principal=principal)  # fmt: skip
    lease = desk.lease(role="t_names", item=desk.item())
    child = db.call("t_names", "eve_submit", queue=desk.queue,
                    under=f"({lease.item},{lease.token})")  # fmt: skip
    assert (child.decision, actor(desk, child.item)) == ("ADMIT", ("t_names", "hands"))
    assert actor(desk, desk.item(role="t_names")) == ("t_names", "hands")
