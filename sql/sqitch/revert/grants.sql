-- The verbs are granted to nobody again and the schema belongs to whoever reverts, so that eve_owner can go.
begin;

do $$
declare
    p record;
begin
    for p in
        select f.oid::pg_catalog.regprocedure as signature
        from pg_catalog.pg_proc as f
        where f.pronamespace = 'public'::pg_catalog.regnamespace and f.proname ^@ 'eve_'
            or f.pronamespace = 'eve'::pg_catalog.regnamespace
    loop
        execute pg_catalog.format(
            'revoke all on function %s from eve_producer, eve_worker, eve_verifier, eve_operator, eve_human, eve_auditor',
            p.signature);
    end loop;
    execute pg_catalog.format('alter schema eve owner to %I', current_user);
end
$$;

commit;
