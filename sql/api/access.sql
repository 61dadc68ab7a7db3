-- api/access.sql · who may act in a queue. Appends under item 0: access_granted, access_revoked.
begin;

create function eve._check_capability(capability text)
returns void
language plpgsql
immutable
as $$
begin
    if capability is null or capability not in ('producer', 'worker', 'verifier', 'operator', 'human', 'auditor') then
        perform eve._raise('22023', 'capability is not one of the six', '{"argument": "capability"}',
            'Use producer, worker, verifier, operator, human or auditor.');
    end if;
end
$$;

comment on function eve._check_capability(text) is 'Refuse an unknown capability (22023).';

create function eve._check_access(role text, capability text)
returns void
language plpgsql
stable
as $$
begin
    perform eve._check_capability(capability);
    if role is null or not exists (select from pg_catalog.pg_roles as r where r.rolname = role) then
        perform eve._raise('42704',
            pg_catalog.format('role "%s" does not exist', coalesce(pg_catalog.left(role, 63), 'null')),
            '{"argument": "role"}', 'Create the role first.');
    end if;
end
$$;

comment on function eve._check_access(text, text) is 'Refuse an unknown capability (22023) or role (42704).';

create function public.eve_grant_access(
    queue text,
    role text,
    capability text,
    principal text default null,
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    answer eve.act_answer;
begin
    c := eve._enter(queue, '{operator}');
    perform eve._check_access(eve_grant_access.role, capability);
    perform eve._check_text('principal', eve_grant_access.principal, 200, false);
    answer := eve._act_replay(c, idempotency_key, 'eve_grant_access', eve._fingerprint('eve_grant_access',
        eve._text(queue), eve._text(eve_grant_access.role), eve._text(capability),
        eve._text(eve_grant_access.principal)));
    if answer.done is not null then
        return answer;
    end if;
    return eve._act_keep(c, idempotency_key, eve._acted(0, eve._queue_event(c, 'access_granted',
        jsonb_strip_nulls(jsonb_build_object('role', eve_grant_access.role, 'capability', capability,
            'principal', eve_grant_access.principal)))));
end
$$;

comment on function public.eve_grant_access(text, text, text, text, text) is
'Give a role a capability in the queue, optionally under a principal that unites rotating logins. It counts only for members of the matching role eve_*. Refuses unknown roles (42704) and capabilities (22023).';

create function public.eve_revoke_access(
    queue text,
    role text,
    capability text,
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    answer eve.act_answer;
begin
    c := eve._enter(queue, '{operator}');
    perform eve._check_capability(eve_revoke_access.capability);
    if eve_revoke_access.role is null then
        perform eve._raise('22004', 'role is null', '{"argument": "role"}',
            'Name the role; it need not exist any more.');
    end if;
    answer := eve._act_replay(c, idempotency_key, 'eve_revoke_access', eve._fingerprint('eve_revoke_access',
        eve._text(queue), eve._text(eve_revoke_access.role), eve._text(capability)));
    if answer.done is not null then
        return answer;
    end if;
    if not exists (
        select from eve.access as a
        where a.queue_id = c.queue_id and a.role = eve_revoke_access.role
            and a.capability = eve_revoke_access.capability) then
        return eve._act_keep(c, idempotency_key, eve._acted(0, null));
    end if;
    return eve._act_keep(c, idempotency_key, eve._acted(0, eve._queue_event(c, 'access_revoked',
        jsonb_build_object('role', eve_revoke_access.role, 'capability', capability))));
end
$$;

comment on function public.eve_revoke_access(text, text, text, text) is
'Take a capability of a role in the queue away; answers done = false when it had none. Live leases end or lapse on their own. Refuses unknown capabilities (22023).';

commit;
