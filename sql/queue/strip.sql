-- queue/strip.sql · leave out what is not given: the top level only, so that nulls inside a caller's document stay.
begin;

create function eve._strip(document jsonb)
returns jsonb
language plpgsql
immutable
as $$
begin
    return (
        select coalesce(pg_catalog.jsonb_object_agg(e.key, e.value), '{}')
        from pg_catalog.jsonb_each(document) as e (key, value)
        where e.value <> 'null'::jsonb);
end
$$;

comment on function eve._strip(jsonb) is
'A document without the keys whose value is null; nested nulls are the caller''s and stay.';

commit;
