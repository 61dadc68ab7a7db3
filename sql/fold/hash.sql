-- fold/hash.sql · the chained hash of an event: sha256 over the previous hash and a fixed binary form of every column.
begin;

create function eve._bin(value bytea)
returns bytea
language sql
immutable
return case
    when _bin.value is null then '\xffffffff'::bytea
    else pg_catalog.int4send(pg_catalog.length(_bin.value)) || _bin.value
end;

comment on function eve._bin(bytea) is
'A value preceded by its length, four bytes, most significant first; null is ffffffff.';

create function eve._bin(value text)
returns bytea
language sql
stable
return case
    when _bin.value is null then '\xffffffff'::bytea
    else pg_catalog.int4send(pg_catalog.octet_length(_bin.value))
        || pg_catalog.convert_to(_bin.value, 'UTF8')
end;

comment on function eve._bin(text) is
'Text as UTF-8 preceded by its length in bytes; null is ffffffff.';

create function eve._hash(
    previous bytea,
    queue_id bigint,
    item bigint,
    version integer,
    tx xid8,
    kind text,
    phase text,
    at timestamptz,
    actor text,
    principal text,
    worker text,
    epoch bigint,
    revision integer,
    token bigint,
    pool text,
    slot integer,
    due_at timestamptz,
    rank smallint,
    attempts integer,
    reason text,
    data jsonb
)
returns bytea
language sql
stable
return pg_catalog.sha256(
    coalesce(_hash.previous, ''::bytea)
    || pg_catalog.int8send(_hash.queue_id)
    || pg_catalog.int8send(_hash.item)
    || pg_catalog.int4send(_hash.version)
    || pg_catalog.xid8send(_hash.tx)
    || eve._bin(_hash.kind)
    || eve._bin(_hash.phase)
    || pg_catalog.timestamptz_send(_hash.at)
    || eve._bin(_hash.actor)
    || eve._bin(_hash.principal)
    || eve._bin(_hash.worker)
    || eve._bin(pg_catalog.int8send(_hash.epoch))
    || eve._bin(pg_catalog.int4send(_hash.revision))
    || eve._bin(pg_catalog.int8send(_hash.token))
    || eve._bin(_hash.pool)
    || eve._bin(pg_catalog.int4send(_hash.slot))
    || eve._bin(pg_catalog.timestamptz_send(_hash.due_at))
    || eve._bin(pg_catalog.int2send(_hash.rank))
    || eve._bin(pg_catalog.int4send(_hash.attempts))
    || eve._bin(_hash.reason)
    || eve._bin(_hash.data::text)
);

comment on function eve._hash(
    bytea, bigint, bigint, integer, xid8, text, text, timestamptz, text, text, text, bigint, integer,
    bigint, text, integer, timestamptz, smallint, integer, text, jsonb
) is
'The hash of one event over the hash of the item''s previous one. Independent of session settings. Called by the trigger and by the audit.';

commit;
