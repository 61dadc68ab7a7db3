-- item/request.sql · keyed requests: the first answer is kept and given again. Raises: idempotency_conflict.
begin;

create table eve.request (
    queue_id bigint not null,
    principal text not null,
    key text not null,
    fingerprint bytea not null,
    function text not null,
    answer jsonb,
    at timestamptz not null,
    constraint request_pkey primary key (queue_id, principal, key),
    constraint request_key_is_short check (octet_length(key) between 1 and 512)
)
with (fillfactor = 80);

comment on table eve.request is
'Keyed requests of a principal with the fingerprint of function and arguments, and the first answer.';

create function eve._fingerprint(function text, variadic arguments bytea[])
returns bytea
language sql
immutable
return pg_catalog.sha256(
    eve._bin(_fingerprint.function)
    || coalesce((
        select pg_catalog.string_agg(eve._bin(a.value), ''::bytea order by a.ordinality)
        from pg_catalog.unnest(_fingerprint.arguments) with ordinality as a (value, ordinality)
    ), ''::bytea)
);

comment on function eve._fingerprint(text, bytea[]) is
'sha256 over a function name and its resolved arguments in binary form, independent of session settings.';

create function eve._text(value anyelement)
returns bytea
language sql
immutable
as $$
    select pg_catalog.convert_to(pg_catalog.to_jsonb(_text.value)::text, 'UTF8')
$$;

comment on function eve._text(anyelement) is
'A value as the UTF-8 bytes of its JSON text, for fingerprints of text, arrays and documents (never of instants).';

create function eve._request_open(c eve.caller, key text, function text, fingerprint bytea)
returns jsonb
language plpgsql
as $$
declare
    prior record;
begin
    if pg_catalog.octet_length(key) not between 1 and 512 then
        perform eve._raise('22023', 'idempotency_key is empty or longer than 512 bytes', null,
            'Use a short unique text, such as a UUID.');
    end if;
    -- The row comes first: a twin waits here until the first request has committed or rolled back.
    insert into eve.request (queue_id, principal, key, fingerprint, function, at)
    values (c.queue_id, c.principal, _request_open.key, _request_open.fingerprint,
        _request_open.function, eve._clock(c))
    on conflict on constraint request_pkey do nothing;
    if found then
        return null;
    end if;
    select r.fingerprint, r.function, r.answer, r.at into prior
    from eve.request as r
    where r.queue_id = c.queue_id and r.principal = c.principal and r.key = _request_open.key;
    if prior.fingerprint is distinct from _request_open.fingerprint then
        perform eve._refuse('idempotency_conflict', c.queue, null,
            pg_catalog.jsonb_build_object('function', prior.function, 'first_at', prior.at));
    end if;
    if prior.answer is null then
        perform eve._raise('55000', 'the first request of this key has not answered', null,
            'A key is used once in a transaction; use another key.');
    end if;
    return prior.answer;
end
$$;

comment on function eve._request_open(eve.caller, text, text, bytea) is
'Claim a key: null for a first request, else the first answer. Refuses other arguments: idempotency_conflict.';

create function eve._request_close(c eve.caller, key text, answer jsonb)
returns void
language plpgsql
as $$
begin
    if answer is null then
        delete from eve.request as r
        where r.queue_id = c.queue_id and r.principal = c.principal and r.key = _request_close.key;
    else
        update eve.request as r set answer = _request_close.answer
        where r.queue_id = c.queue_id and r.principal = c.principal and r.key = _request_close.key;
    end if;
end
$$;

comment on function eve._request_close(eve.caller, text, jsonb) is
'Keep the first answer of a key, or with null give the key back: an answer that says "later" is not kept.';

commit;
