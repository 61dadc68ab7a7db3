-- roles.sql · the owner and the six outer doors, made if absent.
-- Refuses a role of that name with more rights than it may have, an installer who cannot join eve_owner.
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
    -- Whoever installs without being superuser gives all it makes to eve_owner, now and at each upgrade.
    if not pg_catalog.pg_has_role(current_user, 'eve_owner', 'USAGE') then
        execute pg_catalog.format('grant eve_owner to %I', current_user);
    end if;
exception when insufficient_privilege then
    raise exception using
        errcode = '42501',
        message = pg_catalog.format('role "%s" may not make or become a member of the roles of eve', current_user),
        detail = sqlerrm,
        hint = pg_catalog.format('As a superuser: grant eve_owner to %I;', current_user);
end
$$;

grant usage on schema eve to
    eve_owner, eve_producer, eve_worker, eve_verifier, eve_operator, eve_human, eve_auditor;

commit;
