"""Laws that every table, type and view keeps, asked of the catalogue."""

from __future__ import annotations

import build
from support.database import Database
from support.servers import ROOT

WITHOUT_QUEUE = {  # keys that may begin with something else than the queue
    "queue_name_is_unique",
}


def vocabulary() -> list[str]:
    """Tables that hold no queue's rows: made in sql/vocabulary/."""
    return [
        thing.name.removeprefix("eve.")
        for change in build.Plan.read(ROOT).changes
        if change.name.startswith("vocabulary/")
        for thing in change.objects
        if thing.kind == "table"
    ]


def test_every_relation_is_commented(shipped: Database) -> None:
    bare = shipped.rows(
        """
        select c.oid::regclass::text as name from pg_class as c
        where c.relnamespace = 'eve'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S', 'c')
                and obj_description(c.oid, 'pg_class') is null
                and not exists (select from pg_type as t where t.typrelid = c.oid
                    and obj_description(t.oid, 'pg_type') is not null)
            or c.relnamespace = 'public'::regnamespace and c.relname like 'eve\\_%'
                and c.relkind in ('r', 'v', 'm')
                and obj_description(c.oid, 'pg_class') is null
        order by 1
        """
    )
    assert not bare


def test_every_type_is_commented(shipped: Database) -> None:
    bare = shipped.rows(
        """
        select t.oid::regtype::text as name from pg_type as t
        left join pg_class as c on c.oid = t.typrelid
        where (t.typnamespace = 'eve'::regnamespace
                or t.typnamespace = 'public'::regnamespace and t.typname like 'eve\\_%')
            and t.typcategory <> 'A' and (t.typtype <> 'c' or c.relkind = 'c')
            and obj_description(t.oid, 'pg_type') is null
        order by 1
        """
    )
    assert not bare


def test_every_trigger_and_aggregate_is_commented(shipped: Database) -> None:
    assert not shipped.rows(
        """
        select t.tgname from pg_trigger as t join pg_class as c on c.oid = t.tgrelid
        where c.relnamespace = 'eve'::regnamespace and not t.tgisinternal
            and obj_description(t.oid, 'pg_trigger') is null
        """
    )


def test_no_table_is_granted(shipped: Database) -> None:
    granted = shipped.rows(
        """
        select c.oid::regclass::text as name, a.grantee::regrole::text as role, a.privilege_type
        from pg_class as c cross join lateral aclexplode(c.relacl) as a
        where c.relnamespace = 'eve'::regnamespace and c.relkind in ('r', 'p', 'S')
            and a.grantee <> c.relowner
        union all
        select c.oid::regclass || '.' || t.attname, a.grantee::regrole::text, a.privilege_type
        from pg_attribute as t join pg_class as c on c.oid = t.attrelid
        cross join lateral aclexplode(t.attacl) as a
        where c.relnamespace = 'eve'::regnamespace
        """
    )
    assert not granted


def test_views_are_security_barriers(shipped: Database) -> None:
    assert not shipped.rows(
        """
        select c.oid::regclass::text from pg_class as c
        where c.relkind = 'v'
            and (c.relnamespace = 'eve'::regnamespace or c.relname like 'eve\\_%')
            and not coalesce('security_barrier=true' = any (c.reloptions), false)
        """
    )


def test_everything_belongs_to_the_owner(shipped: Database) -> None:
    others = shipped.rows(
        """
        select c.oid::regclass::text as name, c.relowner::regrole::text from pg_class as c
        where c.relnamespace = 'eve'::regnamespace and c.relowner::regrole::text <> 'eve_owner'
        union all
        select t.oid::regtype::text, t.typowner::regrole::text from pg_type as t
        where (t.typnamespace = 'eve'::regnamespace or t.typname ~ '^_?eve_')
            and t.typowner::regrole::text <> 'eve_owner'
        union all
        select n.nspname, n.nspowner::regrole::text from pg_namespace as n
        where n.nspname = 'eve' and n.nspowner::regrole::text <> 'eve_owner'
        """
    )
    assert not others


def test_every_table_has_a_primary_key(shipped: Database) -> None:
    assert not shipped.rows(
        """
        select c.oid::regclass::text from pg_class as c
        where c.relnamespace = 'eve'::regnamespace and c.relkind in ('r', 'p')
            and not exists (select from pg_constraint as k
                where k.conrelid = c.oid and k.contype = 'p')
        """
    )


def test_the_queue_leads_every_key(shipped: Database) -> None:
    leading = shipped.rows(
        """
        select coalesce(k.conname, i.relname)::text as name, a.attname::text as first
        from pg_index as x
        join pg_class as c on c.oid = x.indrelid
        join pg_class as i on i.oid = x.indexrelid
        left join pg_constraint as k on k.conindid = x.indexrelid and k.contype in ('p', 'u', 'x')
        left join pg_attribute as a on a.attrelid = c.oid and a.attnum = x.indkey[0]
        where x.indisunique and c.relnamespace = 'eve'::regnamespace
            and c.relname <> all (%(vocabulary)s)
        union all
        select k.conname::text, a.attname::text
        from pg_constraint as k
        join pg_class as c on c.oid = k.conrelid
        join pg_attribute as a on a.attrelid = k.conrelid and a.attnum = k.conkey[1]
        where k.contype = 'f' and c.relnamespace = 'eve'::regnamespace
            and c.relname <> all (%(vocabulary)s)
            and k.confrelid::regclass::text <> all (%(qualified)s)
        """,
        {"vocabulary": vocabulary(), "qualified": [f"eve.{name}" for name in vocabulary()]},
    )
    assert len(leading) > 10
    assert {row.name for row in leading if row.first != "queue_id"} <= WITHOUT_QUEUE


def test_no_identity_no_enum_no_unlogged(shipped: Database) -> None:
    assert not shipped.rows(
        """
        select a.attrelid::regclass::text, a.attname from pg_attribute as a
        join pg_class as c on c.oid = a.attrelid
        where c.relnamespace = 'eve'::regnamespace and a.attidentity <> ''
        """
    )
    assert not shipped.rows(
        "select oid::regtype::text from pg_type where typtype = 'e' and typnamespace >= 16384"
    )
    assert not shipped.rows(
        "select oid::regclass::text from pg_class"
        " where relnamespace = 'eve'::regnamespace and relpersistence <> 'p'"
    )


def test_constraints_are_named_after_table_and_law(shipped: Database) -> None:
    assert not shipped.rows(
        """
        select c.relname, k.conname from pg_constraint as k
        join pg_class as c on c.oid = k.conrelid
        where c.relnamespace = 'eve'::regnamespace and k.contype <> 'n'
            and (not starts_with(k.conname, c.relname || '_') or k.conname ~ '_check[0-9]*$')
        """
    )


def test_no_state_in_an_index_of_the_projection(shipped: Database) -> None:
    """Else every event is a non-HOT update."""
    assert not shipped.rows(
        """
        select x.indexrelid::regclass::text from pg_index as x
        join pg_attribute as a on a.attrelid = x.indrelid and a.attname = 'queue_state'
        where x.indrelid = 'eve.work_item'::regclass
            and pg_get_indexdef(x.indexrelid) ~ '\\mqueue_state\\M'
        """
    )


def test_guards_are_always_on(shipped: Database) -> None:
    """ENABLE TRIGGER ALL and replica sessions must not switch off what keeps the ledger honest."""
    assert not shipped.rows(
        """
        select t.tgname from pg_trigger as t
        where t.tgrelid = 'eve.ledger'::regclass and not t.tgisinternal and t.tgenabled <> 'A'
        """
    )


def test_user_rows_are_dumped_and_built_in_rows_are_not(shipped: Database) -> None:
    """pg_extension_config_dump marks exactly the tables and sequences that hold a queue's rows."""
    marked = shipped.value(
        "select array_agg(o::regclass::text) from pg_extension, unnest(extconfig) as o"
        " where extname = 'eve'"
    )
    held = shipped.rows(
        "select oid::regclass::text as name from pg_class"
        " where relnamespace = 'eve'::regnamespace and relkind in ('r', 'p', 'S')"
    )
    built_in = {f"eve.{name}" for name in vocabulary()}
    assert set(marked) == {row.name for row in held} - built_in
    for name in marked:
        if shipped.value("select relkind from pg_class where oid = %s::regclass", [name]) == "r":
            assert shipped.value(f"select count(*) from {name}") == 0, f"{name} has rows already"
