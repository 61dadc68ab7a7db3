-- schema.sql · the room in which everything but the verbs lives. Refuses a public schema where PUBLIC may create.
begin;

do $$
begin
    if exists (
        select
        from pg_catalog.pg_namespace n
        cross join lateral pg_catalog.aclexplode(n.nspacl) as a
        where n.nspname = 'public' and a.grantee = 0 and a.privilege_type = 'CREATE'
    ) then
        raise exception using
            errcode = '55000',
            message = 'PUBLIC may create objects in schema "public"',
            hint = 'Run: revoke create on schema public from public;';
    end if;
    if pg_catalog.getdatabaseencoding() <> 'UTF8' then
        raise exception using
            errcode = '55000',
            message = 'the database encoding is not UTF8',
            hint = 'Create the database with encoding UTF8: event hashes are defined over UTF-8.';
    end if;
end
$$;

create schema eve;

comment on schema eve is
'The governed work queue: ledger, fold, item, lease. Granted to nobody; call the eve_* functions of schema public.';

commit;
