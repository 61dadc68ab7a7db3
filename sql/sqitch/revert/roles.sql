-- Roles are cluster-wide: one that anybody is a member of, or that another database knows, stays.
begin;

do $$
declare
    name text;
begin
    foreach name in array array[
        'eve_owner', 'eve_producer', 'eve_worker', 'eve_verifier',
        'eve_operator', 'eve_human', 'eve_auditor'
    ] loop
        continue when pg_catalog.to_regrole(name) is null;
        begin
            execute pg_catalog.format('revoke all on schema eve from %I', name);
            if exists (
                select from pg_catalog.pg_auth_members as m
                where m.roleid = pg_catalog.to_regrole(name) and m.member <> current_user::regrole
            ) then
                raise notice 'role "%" has members and stays', name;
            else
                execute pg_catalog.format('drop role %I', name);
            end if;
        exception when dependent_objects_still_exist or insufficient_privilege then
            raise notice 'role "%" stays: %', name, sqlerrm;
        end;
    end loop;
end
$$;

commit;
