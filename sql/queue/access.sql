-- queue/access.sql · the inner door: which role holds which capability in which queue, and under which name.
begin;

create table eve.access (
    queue_id bigint not null,
    role text not null,
    capability text not null,
    principal text,
    granted_at timestamptz not null,
    constraint access_pkey primary key (queue_id, role, capability),
    constraint access_capability_is_known
    check (capability in ('producer', 'worker', 'verifier', 'operator', 'human', 'auditor'))
);

comment on table eve.access is
'Who may do what in a queue. A row counts only for a caller who also has the matching role eve_*. A principal unites rotating logins under one name.';

create function eve._member(actor text, role text)
returns boolean
language sql
stable
return case
    when _member.actor = _member.role then true
    when (select a.rolsuper from pg_catalog.pg_roles as a where a.rolname = _member.actor)
        then exists (
            select
            from pg_catalog.pg_auth_members as m
            join pg_catalog.pg_roles as granted on granted.oid = m.roleid
            join pg_catalog.pg_roles as holder on holder.oid = m.member
            where granted.rolname = _member.role and holder.rolname = _member.actor
        )
    else coalesce(pg_catalog.pg_has_role(
        (select a.oid from pg_catalog.pg_roles as a where a.rolname = _member.actor),
        (select r.oid from pg_catalog.pg_roles as r where r.rolname = _member.role),
        'USAGE'), false)
end;

comment on function eve._member(text, text) is
'Whether an actor has a role: by inherited membership, for a superuser by direct membership only.';

commit;
