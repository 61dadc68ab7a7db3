-- roles.sql · the owner and the six outer doors, made if absent. Refuses a role of that name that can log in or is a superuser.
begin;

do $$
declare
    name text;
    attributes pg_catalog.pg_roles;
begin
    foreach name in array array[
        'eve_owner', 'eve_producer', 'eve_worker', 'eve_verifier',
        'eve_operator', 'eve_human', 'eve_auditor'
    ] loop
        select r.* into attributes from pg_catalog.pg_roles r where r.rolname = name;
        if not found then
            execute pg_catalog.format(
                'create role %I nologin nosuperuser nocreatedb nocreaterole', name);
        elsif attributes.rolcanlogin or attributes.rolsuper
            or attributes.rolcreaterole or attributes.rolbypassrls then
            raise exception using
                errcode = '55000',
                message = pg_catalog.format('role "%s" exists with more rights than it may have', name),
                hint = 'Make it: nologin nosuperuser nocreaterole nobypassrls.';
        end if;
    end loop;
end
$$;

grant usage on schema eve to
    eve_owner, eve_producer, eve_worker, eve_verifier, eve_operator, eve_human, eve_auditor;

commit;
