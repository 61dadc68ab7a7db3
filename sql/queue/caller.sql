-- queue/caller.sql · who calls, in which queue, as whom. Raises: P0002 for a queue unknown or forbidden, 42501, terminal_state_not_owned.
begin;

create type eve.caller as (
    queue_id bigint,
    queue text,
    actor text,
    principal text,
    epoch bigint,
    halted boolean,
    durability text,
    aging_interval interval,
    request_retention interval,
    default_pool text,
    ttl_floor interval,
    ttl_ceiling interval,
    lanes integer[],
    restricted boolean,
    limited boolean,
    kept timestamptz,
    tick timestamptz
);

comment on type eve.caller is
'The caller of a verb, resolved once: queue, actor (the role behind the call), principal and the facts of the queue; kept is when housekeeping last ran, tick the latest known reading of the clock.';

create function eve._actor()
returns text
language plpgsql
stable
as $$
declare
    role text := nullif(pg_catalog.current_setting('role'), 'none');
begin
    if role is null or pg_catalog.to_regrole(pg_catalog.quote_ident(role)) is null then
        return session_user::text;
    end if;
    return role;
end
$$;

comment on function eve._actor() is
'The database role behind the call: the role set with SET ROLE, which must exist, else the session user. SECURITY DEFINER does not change it.';

create function eve._in_person(actor text)
returns void
language plpgsql
stable
as $$
begin
    -- ANALYZE, REINDEX, CLUSTER, REFRESH and autovacuum run a table's functions as its owner inside the session of
    -- somebody else, whose name session_user still is. Each holds a lock on that table which no verb of ours takes.
    if exists (
        select
        from pg_catalog.pg_locks as l
        join pg_catalog.pg_class as k on k.oid = l.relation
        where l.pid = pg_catalog.pg_backend_pid() and l.locktype = 'relation' and l.granted
            and l.mode in ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock',
                'ExclusiveLock', 'AccessExclusiveLock')
            and l.database = (select d.oid from pg_catalog.pg_database as d where d.datname = current_database())
            and k.relowner <> pg_catalog.to_regrole(pg_catalog.quote_ident(actor))
            and k.relowner <> pg_catalog.to_regrole('eve_owner')
            and k.relnamespace <> pg_catalog.to_regnamespace('pg_catalog')
    ) then
        perform eve._raise('42501', 'the call may come from somebody else''s index, view or table', null,
            'Call it in a transaction that does not maintain or change tables of other roles.');
    end if;
end
$$;

comment on function eve._in_person(text) is
'Refuse (42501) a call that may run inside the maintenance of another role''s table: there the session''s name is not the caller''s.';

create function eve._look(queue text, capabilities text[])
returns eve.caller
language plpgsql
stable
as $$
declare
    c eve.caller;
begin
    if queue is null then
        perform eve._raise('22004', 'queue is null', null, 'Name a queue.');
    end if;
    c.actor := eve._actor();
    if pg_catalog.current_setting('is_superuser') = 'on' then
        perform eve._in_person(c.actor);
    end if;
    select
        q.queue_id, q.name, c.actor, coalesce(n.principal, c.actor), q.epoch, q.halted, q.durability,
        q.aging_interval, q.request_retention, q.default_pool, q.ttl_floor, q.ttl_ceiling,
        q.lanes, q.restricted, q.limited,
        k.at,
        greatest(
            k.at, (select p.at from eve.probe as p where p.queue_id = q.queue_id order by p.xid desc limit 1))
    into c
    from eve.queue as q
    left join lateral (
        select t.at from eve.tick as t where t.queue_id = q.queue_id order by t.at desc limit 1
    ) as k on true
    left join lateral (
        -- One name an actor and queue, whatever the verb.
        select x.principal from eve.access as x
        where x.queue_id = q.queue_id and x.principal is not null and eve._member(c.actor, x.role)
        order by x.role = c.actor desc, x.role, x.principal
        limit 1
    ) as n on true
    cross join lateral (
        -- Rows of the actor itself first; only then those of the roles it is a member of.
        select from eve.access as x
        where x.queue_id = q.queue_id and x.role = c.actor and x.capability = any (_look.capabilities)
            and eve._member(c.actor, 'eve_' || x.capability)
        union all
        select from eve.access as x
        where x.queue_id = q.queue_id and x.role <> c.actor and x.capability = any (_look.capabilities)
            and eve._member(c.actor, x.role)
            and eve._member(c.actor, 'eve_' || x.capability)
        limit 1
    ) as a
    where q.name = _look.queue;
    if not found and exists (
        select from eve.queue as q
        join eve.access as x on x.queue_id = q.queue_id
        where q.name = _look.queue
            and eve._member(eve._actor(), x.role)
            and eve._member(eve._actor(), 'eve_' || x.capability)) then
        perform eve._raise('42501', pg_catalog.format('permission denied for queue "%s"', queue),
            pg_catalog.jsonb_build_object('needs', capabilities),
            'Let an operator give the calling role one of the capabilities in the detail,'
            ' with eve_grant_access and the role eve_* of that name.');
    elsif c.queue_id is null then
        perform eve._raise('P0002', pg_catalog.format('unknown queue "%s"', pg_catalog.left(_look.queue, 200)),
            null, 'Check the name, and that the calling role was given access with eve_grant_access.');
    end if;
    return c;
end
$$;

comment on function eve._look(text, text[]) is
'Resolve a caller who only reads. An unknown queue and one without any access answer alike: P0002; who has access, but none of these capabilities, is refused with 42501.';

create function eve._enter(queue text, capabilities text[])
returns eve.caller
language plpgsql
as $$
begin
    -- The transaction id comes before every clock reading and before the halt is read: marks and halt rest on it.
    perform pg_catalog.pg_current_xact_id();
    return eve._look(_enter.queue, _enter.capabilities);
end
$$;

comment on function eve._enter(text, text[]) is
'Resolve a caller who may write: assigns the transaction id first, then reads the queue in a statement of its own.';

create function eve._has(c eve.caller, capability text)
returns boolean
language sql
stable
return eve._member((c).actor, 'eve_' || _has.capability) and exists (
    select from eve.access as x
    where x.queue_id = (c).queue_id
        and x.capability = _has.capability
        and eve._member((c).actor, x.role)
);

comment on function eve._has(eve.caller, text) is
'Whether the caller has a capability: the role, and an access row of the queue.';

create function eve._must_own(c eve.caller, item bigint, capability text)
returns void
language plpgsql
stable
as $$
begin
    perform eve._in_person(c.actor);
    if not eve._has(c, capability) then
        perform eve._refuse('terminal_state_not_owned', c.queue, item,
            pg_catalog.jsonb_build_object('needs', 'eve_' || capability));
    end if;
end
$$;

comment on function eve._must_own(eve.caller, bigint, text) is
'Refuse an act of a caller who lacks its capability: terminal_state_not_owned.';

create function eve._clock(c eve.caller)
returns timestamptz
language sql
volatile
return greatest(eve.now(), (c).tick);

comment on function eve._clock(eve.caller) is
'A reading of the clock that is never before the last recorded tick of the queue.';

create function eve._everyone()
returns text[]
language sql
immutable
return '{producer,worker,verifier,operator,human,auditor}'::text[];

comment on function eve._everyone() is 'All six capabilities, for acts whose ownership is checked after entry.';

commit;
