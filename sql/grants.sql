-- grants.sql · one page: who owns everything, and which role may call which verb. The last change.
begin;

do $$
declare
    o record;
begin
    -- Whoever installs without being superuser gives eve_owner its rooms for the length of this script.
    if not (select r.rolsuper from pg_catalog.pg_roles as r where r.rolname = current_user) then
        execute 'grant create on schema public to eve_owner';
    end if;
    execute 'alter schema eve owner to eve_owner';
    for o in
        select case when k.relkind = 'S' then 'sequence' when k.relkind = 'v' then 'view' else 'table' end as kind,
            k.oid::pg_catalog.regclass::text as name
        from pg_catalog.pg_class as k
        join pg_catalog.pg_namespace as n on n.oid = k.relnamespace
        where n.nspname = 'eve' and k.relkind in ('r', 'S', 'v')
            and k.relowner <> 'eve_owner'::pg_catalog.regrole
        union all
        select 'type', t.oid::pg_catalog.regtype::text
        from pg_catalog.pg_type as t
        join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
        join pg_catalog.pg_class as k on k.oid = t.typrelid and k.relkind = 'c'
        where n.nspname = 'eve' or n.nspname = 'public' and t.typname = 'eve_lease'
        union all
        select case p.prokind when 'a' then 'aggregate' else 'function' end,
            p.oid::pg_catalog.regprocedure::text
        from pg_catalog.pg_proc as p
        join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
        where n.nspname = 'eve' or n.nspname = 'public' and p.proname ^@ 'eve_'
    loop
        execute pg_catalog.format('alter %s %s owner to eve_owner', o.kind, o.name);
        if o.kind in ('function', 'aggregate') then
            execute pg_catalog.format('revoke all on function %s from public', o.name);
        elsif o.kind = 'type' then
            execute pg_catalog.format('revoke all on type %s from public', o.name);
        end if;
    end loop;
    if not (select r.rolsuper from pg_catalog.pg_roles as r where r.rolname = current_user) then
        execute 'revoke create on schema public from eve_owner';
    end if;
end
$$;

do $$
declare
    g record;
    o record;
begin
    -- x may, r may call and is refused with terminal_state_not_owned: both need EXECUTE. Blank is 42501.
    for g in
        select * from (values
            -- verb                    producer worker verifier operator human auditor
            ('eve_submit',             'producer worker operator'),
            ('eve_measure',            'operator'),
            ('eve_set_health',         'operator'),
            ('eve_recheck',            'operator'),
            ('eve_backtest',           'operator'),
            ('eve_cancel',             'producer operator human'),
            ('eve_acquire',            'worker'),
            ('eve_turn',               'worker'),
            ('eve_renew',              'worker'),
            ('eve_return',             'worker'),
            ('eve_complete',           'worker'),
            ('eve_complete_batch',     'worker'),
            ('eve_fail',               'worker'),
            ('eve_start_effect',       'worker'),
            ('eve_fence',              'worker'),
            ('eve_observe_effect',     'worker verifier'),
            ('eve_reconcile',          'verifier human'),
            ('eve_compensate',         'verifier human'),
            ('eve_verify',             'producer worker verifier operator human auditor'),
            ('eve_settle_import',      'producer worker verifier operator human auditor'),
            ('eve_accept',             'producer worker verifier operator human auditor'),
            ('eve_decline',            'producer worker verifier operator human auditor'),
            ('eve_reject',             'producer worker verifier operator human auditor'),
            ('eve_unpark',             'producer worker verifier operator human auditor'),
            ('eve_resume',             'producer worker verifier operator human auditor'),
            ('eve_approve_slots',      'producer worker verifier operator human auditor'),
            ('eve_halt',               'operator human'),
            ('eve_reprioritise',       'operator human'),
            ('eve_propose',            'producer worker verifier operator human'),
            ('eve_create_queue',       'operator'),
            ('eve_define_class',       'operator'),
            ('eve_define_pool',        'operator'),
            ('eve_grant_access',       'operator'),
            ('eve_revoke_access',      'operator'),
            ('eve_fence_table',        'operator'),
            ('eve_new_epoch',          'operator'),
            ('eve_rebuild',            'operator'),
            ('eve_pause',              'operator'),
            ('eve_unpause',            'operator'),
            ('eve_sweep',              'worker operator'),
            ('eve_recover',            'worker operator'),
            ('eve_item',               'producer worker verifier operator human auditor'),
            ('eve_explain',            'producer worker verifier operator human auditor'),
            ('eve_checks',             'producer worker verifier operator human auditor'),
            ('eve_statement',          'producer worker verifier operator human auditor'),
            ('eve_contract',           'producer worker verifier operator human auditor'),
            ('eve_history',            'verifier operator human auditor'),
            ('eve_replay',             'verifier operator human auditor'),
            ('eve_audit',              'verifier operator human auditor'),
            ('eve_stats',              'verifier operator human auditor')
        ) as v (verb, roles)
    loop
        for o in
            select p.oid::pg_catalog.regprocedure as signature, r.role
            from pg_catalog.pg_proc as p
            cross join pg_catalog.regexp_split_to_table(g.roles, ' ') as r (role)
            where p.pronamespace = 'public'::pg_catalog.regnamespace and p.proname = g.verb
        loop
            execute pg_catalog.format('grant execute on function %s to %I', o.signature, 'eve_' || o.role);
        end loop;
    end loop;
end
$$;

-- What eve_fence_table needs, run with the rights of the table's owner.
grant execute on function eve._fence_queue(text, regclass, text, text) to eve_operator;
grant execute on function eve._fence_row() to eve_operator;
grant execute on function eve._fence_guarded(text, bigint, bigint, boolean) to
    eve_producer, eve_worker, eve_verifier, eve_operator, eve_human, eve_auditor;

-- The answers are read, and a lease is named, by every caller.
do $$
declare
    t record;
begin
    for t in
        select y.oid::pg_catalog.regtype as name
        from pg_catalog.pg_type as y
        join pg_catalog.pg_class as k on k.oid = y.typrelid and k.relkind = 'c'
        where y.typnamespace = 'eve'::pg_catalog.regnamespace and y.typname ~ '_answer$'
            or y.typnamespace = 'public'::pg_catalog.regnamespace and y.typname = 'eve_lease'
    loop
        execute pg_catalog.format(
            'grant usage on type %s to eve_producer, eve_worker, eve_verifier, eve_operator, eve_human, eve_auditor',
            t.name);
    end loop;
end
$$;

-- The installer operates, produces, works and audits, where it may give these roles; human is never automatic:
--     grant eve_human to somebody;  select eve_grant_access('queue', 'somebody', 'human');
do $$
declare
    installer record;
    role text;
begin
    select r.rolname as name, r.oid, r.rolsuper into strict installer
    from pg_catalog.pg_roles as r where r.rolname = session_user;
    foreach role in array array['eve_operator', 'eve_producer', 'eve_worker', 'eve_auditor'] loop
        continue when case
            when installer.rolsuper then exists (
                select from pg_catalog.pg_auth_members as m
                where m.roleid = pg_catalog.to_regrole(role) and m.member = installer.oid)
            else pg_catalog.pg_has_role(installer.oid, role, 'USAGE')
        end;
        begin
            execute pg_catalog.format('grant %I to %I', role, installer.name);
        exception when insufficient_privilege then
            raise notice 'not granted: %', pg_catalog.format('grant %I to %I;', role, installer.name);
        end;
    end loop;
end
$$;

commit;
