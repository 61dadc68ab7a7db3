"""Laws that every function keeps, asked of the catalogue."""

from __future__ import annotations

import pytest

from support.database import Database

OURS = """
(p.pronamespace = 'eve'::regnamespace
    or p.pronamespace = 'public'::regnamespace and p.proname like 'eve\\_%%')
"""
ON_OTHER_TABLES = {"eve._fence_row()"}  # trigger functions that no table of eve fires
FOR_TABLE_OWNERS = {  # internals that eve_fence_table needs with the rights of its caller
    "eve._fence_row()",
    "eve._fence_queue(text,regclass,text,text)",
    "eve._fence_guarded(text,bigint,bigint,boolean)",
}


def names(db: Database, condition: str) -> list[str]:
    query = f"""
        select format('%%I.%%I(%%s)', p.pronamespace::regnamespace, p.proname,
            replace(oidvectortypes(p.proargtypes), ', ', ',')) as name
        from pg_proc as p where {OURS} and ({condition}) order by 1
    """
    return [row.name for row in db.rows(query, [])]


def test_there_are_functions(shipped: Database) -> None:
    assert len(names(shipped, "true")) > 40
    assert len(names(shipped, "p.proname like 'eve\\_%%'")) > 20


IN_PYTHON = "p.prolang = (select oid from pg_language where lanname = 'plpython3u')"


def test_the_laws_are_asked_of_both_extensions(shipped: Database) -> None:
    assert set(names(shipped, IN_PYTHON)) == {
        "eve._jsonschema_faults(jsonb,bytea,jsonb)",
        "eve._plan_faults(jsonb,text[])",
        "eve._schema_fault(jsonb)",
        "eve._start_delay(bigint,bigint[],double precision[],double precision)",
    }
    assert "public.eve_plan_check(text,jsonb)" in names(shipped, "true")


def test_python_runs_for_the_owner_alone(shipped: Database) -> None:
    """It runs as the server's user: no definer, granted to nobody, and no SQL in it."""
    assert not names(shipped, f"{IN_PYTHON} and (p.prosecdef or p.provolatile = 'v')")
    assert not names(shipped, f"{IN_PYTHON} and {CALLABLE}")
    assert not names(shipped, f"{IN_PYTHON} and p.prosrc ~ '\\mplpy\\M'")


PINNED = "coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)"
CALLABLE = (
    "exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a"
    " where a.grantee <> p.proowner)"
)


def test_search_path_is_pinned(shipped: Database) -> None:
    """Wherever somebody else can come in: verbs and definers. Or parsed at creation.

    Internals, the triggers of the tables that nobody is granted among them, are called from pinned
    functions only and inherit the pin; a SET of their own would cost microseconds on the hot path
    and forbid inlining.
    """
    entered = f"p.prosecdef or {CALLABLE}"
    assert not names(
        shipped, f"({entered}) and p.prokind <> 'a' and p.prosqlbody is null and not {PINNED}"
    )


def test_a_pin_is_always_the_same(shipped: Database) -> None:
    assert not names(
        shipped,
        f"array_to_string(p.proconfig, ' ') ~ 'search_path' and not {PINNED}",
    )


def test_security_definer_means_eve_owner(shipped: Database) -> None:
    assert not names(shipped, "p.prosecdef and pg_get_userbyid(p.proowner) <> 'eve_owner'")
    assert not names(shipped, "pg_get_userbyid(p.proowner) <> 'eve_owner'")


def test_the_owner_is_nobody(shipped: Database) -> None:
    owner = shipped.row("select * from pg_roles where rolname = 'eve_owner'")
    rights = (owner.rolcanlogin, owner.rolsuper, owner.rolcreaterole, owner.rolbypassrls)
    assert not any(rights)


def test_public_may_execute_nothing(shipped: Database) -> None:
    assert not names(
        shipped,
        "exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a"
        " where a.grantee = 0)",
    )


def test_internals_are_granted_to_nobody(shipped: Database) -> None:
    granted = names(
        shipped,
        "p.pronamespace = 'eve'::regnamespace and exists (select from aclexplode(p.proacl) as a"
        " where a.grantee <> p.proowner)",
    )
    assert set(granted) == FOR_TABLE_OWNERS


def test_every_verb_is_granted_to_a_role(shipped: Database) -> None:
    assert not names(
        shipped,
        "p.pronamespace = 'public'::regnamespace and p.prorettype <> 'trigger'::regtype"
        " and not exists (select from aclexplode(p.proacl) as a where a.grantee <> p.proowner)",
    )


def test_every_function_is_commented(shipped: Database) -> None:
    assert not names(shipped, "obj_description(p.oid, 'pg_proc') is null")


def test_every_verb_has_one_signature(shipped: Database) -> None:
    """A second overload makes calls by name ambiguous."""
    assert not shipped.rows(
        "select proname from pg_proc where pronamespace = 'public'::regnamespace"
        " and proname like 'eve\\_%' group by 1 having count(*) > 1"
    )


def test_the_queue_comes_first_and_the_key_last(shipped: Database) -> None:
    wrong = shipped.rows(
        """
        select p.proname from pg_proc as p
        where p.pronamespace = 'public'::regnamespace and p.proname like 'eve\\_%'
            and p.proargnames is not null
            and ('queue' = any (p.proargnames) and p.proargnames[1] <> 'queue'
                or 'idempotency_key' = any (p.proargnames)
                    and p.proargnames[p.pronargs] <> 'idempotency_key')
        """
    )
    assert not wrong


def bodies(db: Database, pattern: str) -> list[str]:
    """Functions whose body, comments left out, matches."""
    return names(
        db,
        "regexp_replace(coalesce(pg_get_function_sqlbody(p.oid), p.prosrc), '--[^\\n]*', '', 'g')"
        f" ~* '{pattern}'",
    )


def test_one_function_raises(shipped: Database) -> None:
    raising = bodies(shipped, r"\mraise\s+(exception|sqlstate|using|[a-z_]+\s*;)|\mraise\s*;")
    assert {name.split("(")[0] for name in raising} == {"eve._raise"}


def test_only_append_writes_the_ledger(shipped: Database) -> None:
    writers = bodies(shipped, r"insert\s+into\s+eve\.ledger\M")
    assert writers
    assert all(name.startswith("eve._append") for name in writers)


def test_append_never_uses_on_conflict(shipped: Database) -> None:
    assert not [n for n in bodies(shipped, r"\mon\s+conflict\M") if n.startswith("eve._append")]


def test_nothing_changes_a_ledger_row(shipped: Database) -> None:
    assert not bodies(shipped, r"\m(update|truncate)\s+(only\s+)?eve\.ledger\M")


def test_no_advisory_locks_no_deferred_work(shipped: Database) -> None:
    assert not bodies(shipped, r"pg_(try_)?advisory|set\s+constraints")
    assert bodies(shipped, r"\mlock\s+table\M") == ["public.eve_rebuild(text)"]


def test_one_clock(shipped: Database) -> None:
    """Only eve.now() reads the machine's clock; a probe also needs the transaction's start."""
    reading = bodies(
        shipped,
        r"\m(clock_timestamp|statement_timestamp|transaction_timestamp)\M|pg_catalog\.now\(\)"
        r"|\mcurrent_(timestamp|date|time)\M|\mlocaltime",
    )
    assert set(reading) <= {"eve.now()", "eve._probe(bigint)"}


def test_no_session_settings_carry_meaning(shipped: Database) -> None:
    assert not bodies(shipped, r"current_setting\(''eve[.]")


NOT_A_FAULT = """
-- The gates, and steps of one kind, share a signature.
c.message ~ '^unused parameter'
-- A literal has no type until it is assigned. Casts between types that differ are findings.
or c.sqlstate = '42804' and c.detail ~ '^cast "text" value to'
-- What raises is no value, what assigns a transaction id or must see new commits no reading.
or p.proname in ('_raise', '_enter', '_slot_free') and c.message ~ '^routine is marked as VOLATILE'
or c.message ~ '^composite OUT variable'
-- An endless loop that is left by return alone.
or p.proname = '_pick' and c.sqlstate = '2F005'
"""


def test_plpgsql_check_is_content(checked: Database) -> None:
    """With the search_path of the pinned functions, so that a name which needs another is found."""
    checked.rows("create extension if not exists plpgsql_check")
    checked.rows("set search_path to pg_catalog, pg_temp")
    found = checked.rows(
        f"""
        select p.oid::regprocedure::text as function, c.lineno, c.level, c.message, c.detail
        from pg_proc as p
        join pg_language as l on l.oid = p.prolang and l.lanname = 'plpgsql'
        left join pg_trigger as t on t.tgfoid = p.oid and not t.tgisinternal
        cross join lateral public.plpgsql_check_function_tb(
            p.oid, coalesce(t.tgrelid, 0), fatal_errors => false, security_warnings => true,
            performance_warnings => true, extra_warnings => true) as c
        where {OURS} and p.oid::regprocedure::text <> all (%s) and ({NOT_A_FAULT}) is not true
        order by 1, 2
        """,
        [list(ON_OTHER_TABLES)],
    )
    if found:
        pytest.fail("\n".join(f"{r.function}:{r.lineno} {r.message}: {r.detail}" for r in found))


def test_a_pinned_plan_is_not_compiled(checked: Database) -> None:
    """The cost of a disabled path would make the server compile each statement of each call."""
    settings = "coalesce(array_to_string(p.proconfig, ' '), '')"
    assert names(checked, f"{settings} ~ 'enable_seqscan=off'")
    assert not names(checked, f"{settings} ~ 'enable_seqscan=off' and {settings} !~ 'jit=off'")
