"""Who may do what: the matrix of the contract, exactly, verb by verb and role by role."""

from __future__ import annotations

import psycopg
import pytest

from support.database import Database
from support.world import ROLES, World

# x may · o only its own · l only under a lease · r may call and is refused with
# terminal_state_not_owned · . may not call (42501)
MATRIX = """
                 producer worker verifier operator human auditor
submit              x       l       .        x       .      .
cancel              o       .       .        x       x      .
acquire             .       x       .        .       .      .
turn                .       x       .        .       .      .
renew               .       x       .        .       .      .
return              .       x       .        .       .      .
complete            .       x       .        .       .      .
complete_batch      .       x       .        .       .      .
fail                .       x       .        .       .      .
start_effect        .       x       .        .       .      .
fence               .       x       .        .       .      .
observe_effect      .       x       x        .       .      .
reconcile           .       .       x        .       x      .
compensate          .       .       x        .       x      .
verify              r       r       x        r       r      r
settle_import       r       r       x        r       r      r
accept              r       r       r        r       x      r
decline             r       r       r        r       x      r
reject              r       r       r        r       x      r
unpark              r       r       r        r       x      r
resume              r       r       r        r       x      r
approve_slots       r       r       r        r       x      r
halt                .       .       .        x       x      .
reprioritise        .       .       .        x       x      .
propose             x       x       x        x       x      .
create_queue        .       .       .        x       .      .
define_class        .       .       .        x       .      .
define_pool         .       .       .        x       .      .
grant_access        .       .       .        x       .      .
revoke_access       .       .       .        x       .      .
fence_table         .       .       .        x       .      .
new_epoch           .       .       .        x       .      .
rebuild             .       .       .        x       .      .
pause               .       .       .        x       .      .
unpause             .       .       .        x       .      .
measure             .       .       .        x       .      .
set_health          .       .       .        x       .      .
recheck             .       .       .        x       .      .
backtest            .       .       .        x       .      .
sweep               .       x       .        x       .      .
recover             .       x       .        x       .      .
item                o       x       x        x       x      x
explain             o       x       x        x       x      x
checks              o       x       x        x       x      x
statement           o       x       x        x       x      x
contract            x       x       x        x       x      x
history             .       .       x        x       x      x
replay              .       .       x        x       x      x
audit               .       .       x        x       x      x
stats               .       .       x        x       x      x
"""
_head, *_lines = [line.split() for line in MATRIX.strip().splitlines()]
CELLS = {f"eve_{verb}": dict(zip(ROLES, cells, strict=True)) for verb, *cells in _lines}


def test_the_matrix_has_every_verb(shared: Database) -> None:
    assert tuple(_head) == ROLES
    verbs = shared.rows(
        "select proname from pg_proc where pronamespace = 'public'::regnamespace"
        " and proname ^@ 'eve_' and prorettype <> 'trigger'::regtype"
    )
    assert {row.proname for row in verbs} == set(CELLS)


@pytest.mark.parametrize("verb", CELLS)
def test_execute_is_granted_as_the_matrix_says(shared: Database, verb: str) -> None:
    for role, cell in CELLS[verb].items():
        assert (cell != ".") == shared.value(
            "select has_function_privilege(%s, oid, 'execute') from pg_proc where proname = %s",
            [f"eve_{role}", verb],
        ), role
    assert not shared.value(
        "select has_function_privilege('public', oid, 'execute')"
        " or has_function_privilege('t_nobody', oid, 'execute') from pg_proc where proname = %s",
        [verb],
    )


@pytest.mark.parametrize("verb", CELLS)
def test_each_role_is_let_in_or_refused_as_the_matrix_says(world: World, verb: str) -> None:
    assert world.may(verb) == [r for r, cell in CELLS[verb].items() if cell in "xol"] or set(
        world.may(verb)
    ) == {r for r, cell in CELLS[verb].items() if cell in "xol"}
    for role, cell in CELLS[verb].items():
        if cell in "xol":
            login, arguments = world.valid(verb, role)
            answers = world.answer(login, verb, **arguments)
            assert answers, role
            assert getattr(answers[0], "refusal", None) is None, role
            continue
        _, arguments = world.valid(verb)
        code = "terminal_state_not_owned" if cell == "r" else "42501"
        before = world.desk.census() if cell == "r" else None
        with world.db.refused(code):
            world.answer(f"t_{role}", verb, **arguments)
        assert before is None or world.desk.census() == before


@pytest.mark.parametrize("verb", CELLS)
def test_who_has_no_role_is_refused_everything(world: World, verb: str) -> None:
    _, arguments = world.valid(verb)
    with world.db.refused("42501"):
        world.answer("t_nobody", verb, **arguments)


def test_a_worker_submits_only_under_its_lease(world: World) -> None:
    lease = world.leases["held"]
    with world.db.refused("42501"):
        world.answer("t_worker", "eve_submit", queue=world.desk.queue)
    stranger = world.answer(
        "t_worker2", "eve_submit", queue=world.desk.queue, under=f"({lease.item},{lease.token})"
    )[0]
    assert (stranger.decision, stranger.reason) == ("REJECT", "lease_not_live")
    child = world.answer(
        "t_worker", "eve_submit", queue=world.desk.queue, under=f"({lease.item},{lease.token})"
    )[0]
    assert child.decision == "ADMIT"


def test_a_producer_reads_and_cancels_only_its_own(world: World) -> None:
    """And learns of another's item exactly what it learns of one that does not exist."""
    desk = world.desk
    other = desk.item(role="t_operator", work_id="somebody-else")
    said = set()
    for verb in ("eve_item", "eve_explain"):
        for name, value in (("item", other), ("item", 10**15), ("work_id", "somebody-else"),
                            ("work_id", "nothing")):  # fmt: skip
            with desk.refused("P0002") as refused:
                desk.call("t_producer", verb, **{name: value})
            diag = refused.error.diag
            said.add(((diag.message_primary or "").replace(str(value), "?"), diag.message_hint,
                      diag.message_detail))  # fmt: skip
    assert said == {
        ("unknown item ?", "Items are numbered by eve_submit; a producer reads its own.", None),
        ("unknown item '?'", "Items are numbered by eve_submit; a producer reads its own.", None),
    }
    for arguments in ({"item": other}, {"work_id": "somebody-else"}, {"item": 10**15}):
        answer = desk.call("t_producer", "eve_cancel", **arguments)
        assert (answer.done, answer.phase, answer.version, answer.detail) == (False, None, None, {})
    assert desk.phase(other) == "ready"
    assert desk.call("t_operator", "eve_cancel", item=other).done


def test_a_producers_tombstone_is_its_own(world: World) -> None:
    """Nobody blocks another's work by naming its cancellation identity first."""
    desk = world.desk
    desk.call("t_producer", "eve_cancel", cancellation_identity="contested")
    assert desk.submit(cancellation_identity="contested").reason == "intent_cancelled"
    theirs = desk.submit(role="t_operator", cancellation_identity="contested")
    assert theirs.decision == "ADMIT"
    desk.call("t_operator", "eve_cancel", cancellation_identity="contested")
    assert desk.phase(theirs.item) == "cancelled"
    for role in ("t_operator", "t_producer"):
        answer = desk.submit(role=role, cancellation_identity="contested")
        assert answer.reason == "intent_cancelled"


# --- another queue


@pytest.mark.parametrize("verb", [verb for verb in CELLS if "contract" not in verb])
def test_unknown_and_forbidden_queues_answer_alike(world: World, verb: str) -> None:
    """Word for word, before anything about the queue is looked at."""
    if verb == "eve_create_queue":  # names are one space: a taken one is all that it tells
        with world.db.refused("42710") as refused:
            world.answer("t_operator", verb, queue=world.foreign.queue, durability="any")
        assert refused.error.diag.message_detail is None
        return
    # t_operator may do anything in the foreign queue, so another operator asks.
    for role in (r for r, cell in CELLS[verb].items() if cell != "."):
        login = "t_stranger" if role == "operator" else f"t_{role}"
        main = role if role in world.may(verb) else None
        _, arguments = world.valid(verb, main)
        said = set()
        for queue in (world.foreign.queue, "nowhere"):
            with world.db.refused("P0002") as refused:
                world.answer(login, verb, **{**arguments, "queue": queue})
            diag = refused.error.diag
            said.add(((diag.message_primary or "").replace(queue, "?"), diag.message_detail,
                      diag.message_hint, (diag.context or "").replace(queue, "?")))  # fmt: skip
        assert len(said) == 1, said
        assert said.pop()[0] == 'unknown queue "?"'


@pytest.fixture(autouse=True)
def stranger(shared: Database) -> None:
    """An operator, worker and human of no foreign queue."""
    if not shared.value("select 1 from pg_roles where rolname = 't_stranger'"):
        shared.rows("create role t_stranger login in role eve_operator, eve_worker, eve_human")
    shared.rows("grant create on schema public to t_stranger")


def test_foreign_items_and_decisions_are_unknown_ones(world: World) -> None:
    """Their numbers come from one sequence, and tell nothing."""
    named = {
        "item": (world.items["foreign"], 10**15),
        "decision": (world.decisions["foreign"], 10**15),
    }
    for verb in CELLS:
        login, arguments = (
            world.valid(verb) if verb != "eve_settle_import" else world.valid(verb, "verifier")
        )
        for name, values in named.items():
            if name not in arguments:
                continue
            said = set()
            for value in values:
                try:
                    answer = world.answer(login, verb, **{**arguments, name: value})
                except psycopg.Error as error:
                    diag = error.diag
                    texts = (diag.message_primary, diag.message_detail, diag.message_hint)
                    said.add((error.sqlstate, str(texts).replace(str(value), "?")))
                else:
                    said.add(("answered", str(answer).replace(str(value), "?")))
            assert len(said) == 1, (verb, said)


def test_an_audit_of_everything_shows_ones_own(world: World) -> None:
    seen = {row.queue for row in world.db.calls("t_auditor", "eve_audit")}
    assert world.desk.queue in seen
    assert world.foreign.queue not in seen


# --- direct access


PRIVILEGES = {
    "r": ["select", "insert", "update", "delete", "truncate", "references", "trigger"],
    "v": ["select", "insert", "update", "delete"],
    "S": ["usage", "select", "update"],
}
LOGINS = [f"t_{role}" for role in ROLES] + ["t_worker2", "t_nobody", "public"]


def test_no_ordinary_role_has_any_privilege_on_a_relation(shared: Database) -> None:
    relations = shared.rows(
        "select oid::regclass::text as name, relkind::text as kind from pg_class"
        " where relnamespace = 'eve'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'S')"
    )
    assert len(relations) > 30
    found = []
    for kind, privileges in PRIVILEGES.items():
        for privilege in privileges:
            test = "sequence" if kind == "S" else "table"
            found += shared.rows(
                f"select r.role, c.oid::regclass from pg_class as c, unnest(%s::text[]) as r (role)"
                f" where c.relnamespace = 'eve'::regnamespace and c.relkind = %s"
                f" and has_{test}_privilege(r.role, c.oid, %s)",
                [LOGINS, kind, privilege],
            )
    found += shared.rows(
        "select r.role, c.oid::regclass from pg_class as c, unnest(%s::text[]) as r (role),"
        " unnest(array['select', 'insert', 'update', 'references']) as p (name)"
        " where c.relnamespace = 'eve'::regnamespace and c.relkind in ('r', 'v')"
        " and has_any_column_privilege(r.role, c.oid, p.name)",
        [LOGINS],
    )
    assert found == []


@pytest.mark.parametrize("role", [f"t_{role}" for role in ROLES] + ["t_nobody"])
def test_every_relation_refuses_every_direct_statement(shared: Database, role: str) -> None:
    relations = shared.rows(
        "select oid::regclass::text as name, relkind::text as kind from pg_class"
        " where relnamespace = 'eve'::regnamespace and relkind in ('r', 'p', 'v', 'S')"
    )
    for name, kind in relations:
        statements = [f"select from {name}", f"select nextval('{name}')"][kind == "S" :][:1]
        if kind == "S":
            statements.append(f"select setval('{name}', 1)")
        if kind == "r":
            statements += [
                f"insert into {name} default values", f"delete from {name}", f"truncate {name}",
                f"copy {name} to stdout", f"alter table {name} disable trigger all",
                f"drop table {name}",
            ]  # fmt: skip
        for statement in statements:
            with shared.refused("42501"):
                shared.rows(statement, role=role)


def test_no_ordinary_role_may_call_or_name_what_is_inside(shared: Database) -> None:
    """But the two functions that eve_fence_table needs, and the types of answers."""
    callable_ = shared.rows(
        "select distinct p.oid::regprocedure::text"
        " from pg_proc as p, unnest(%s::text[]) as r (role)"
        " where p.pronamespace = 'eve'::regnamespace"
        " and has_function_privilege(r.role, p.oid, 'execute')",
        [LOGINS],
    )
    assert {row[0].split("(")[0] for row in callable_} <= {
        "eve._fence_queue", "eve._fence_row", "eve._fence_guarded"
    }  # fmt: skip
    usable = shared.rows(
        "select distinct t.oid::regtype::text from pg_type as t"
        " join pg_class as c on c.oid = t.typrelid and c.relkind = 'c',"
        " unnest(%s::text[]) as r (role)"
        " where t.typnamespace = 'eve'::regnamespace"
        " and has_type_privilege(r.role, t.oid, 'usage')",
        [LOGINS],
    )
    assert all(row[0].endswith("_answer") for row in usable)
    for role in LOGINS[:-1]:
        assert not shared.value("select has_schema_privilege(%s, 'eve', 'create')", [role])
    assert not shared.value("select has_schema_privilege('t_nobody', 'eve', 'usage')")
