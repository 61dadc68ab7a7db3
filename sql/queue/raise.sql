-- queue/raise.sql · the one function that raises, and the one that turns a refusal code into a raise.
begin;

create function eve._raise(sqlstate text, message text, detail jsonb default null, hint text default null)
returns void
language plpgsql
as $$
begin
    if detail is null and hint is null then
        raise exception using errcode = _raise.sqlstate, message = _raise.message;
    elsif hint is null then
        raise exception using
            errcode = _raise.sqlstate, message = _raise.message, detail = _raise.detail::text;
    elsif detail is null then
        raise exception using
            errcode = _raise.sqlstate, message = _raise.message, hint = _raise.hint;
    end if;
    raise exception using
        errcode = _raise.sqlstate, message = _raise.message,
        detail = _raise.detail::text, hint = _raise.hint;
end
$$;

comment on function eve._raise(text, text, jsonb, text) is
'Raise: SQLSTATE, a short message, a machine-readable DETAIL and a HINT with the next action. The only body that raises.';

create function eve._next(code text, queue text, item bigint)
returns jsonb
language sql
stable
return (
    select pg_catalog.to_jsonb(pg_catalog.array_agg(
        pg_catalog.replace(
            pg_catalog.replace(n.call, '%queue%', pg_catalog.quote_literal(_next.queue)),
            '%item%', coalesce(_next.item::text, 'item'))
        order by n.ordinality))
    from eve.refusal as r
    cross join lateral pg_catalog.unnest(r.next) with ordinality as n (call, ordinality)
    where r.code = _next.code
);

comment on function eve._next(text, text, bigint) is
'The calls that are allowed after a refusal, filled in.';

create function eve._refuse(code text, queue text, item bigint, detail jsonb default null)
returns void
language plpgsql
as $$
declare
    refusal record;
begin
    if code = 'unknown_item' then
        perform eve._raise('P0002', pg_catalog.format('unknown item %s', coalesce(item::text, 'null')),
            pg_catalog.jsonb_build_object('item', item), 'Items are numbered by eve_submit.');
    end if;
    select r.sqlstate, r.message, r.hint into strict refusal
    from eve.refusal as r where r.code = _refuse.code;
    perform eve._raise(
        refusal.sqlstate,
        refusal.message,
        pg_catalog.jsonb_build_object('code', _refuse.code, 'item', _refuse.item)
        || coalesce(_refuse.detail, '{}')
        || pg_catalog.jsonb_build_object('next', eve._next(_refuse.code, _refuse.queue, _refuse.item)),
        refusal.hint);
end
$$;

comment on function eve._refuse(text, text, bigint, jsonb) is
'Raise one refusal of the vocabulary, with its SQLSTATE, its detail and the calls allowed next; an unknown item is P0002.';

commit;
