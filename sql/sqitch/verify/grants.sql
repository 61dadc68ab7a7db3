-- The owner owns, PUBLIC may do nothing, and each door opens for its role.
begin;

do $$
begin
    if exists (
        select from pg_catalog.pg_proc as p
        where (p.pronamespace = 'eve'::pg_catalog.regnamespace
                or p.pronamespace = 'public'::pg_catalog.regnamespace and p.proname ^@ 'eve_')
            and (p.proowner <> 'eve_owner'::pg_catalog.regrole
                or pg_catalog.has_function_privilege('public', p.oid, 'EXECUTE'))) then
        raise exception 'a function is not owned by eve_owner, or PUBLIC may execute it';
    end if;
    if not pg_catalog.has_function_privilege('eve_worker',
        'public.eve_acquire(text, text, bigint, text[], text, interval, integer, text)', 'EXECUTE') then
        raise exception 'eve_worker may not acquire';
    end if;
end
$$;

rollback;
