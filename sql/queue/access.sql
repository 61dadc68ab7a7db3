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

create index access_principal on eve.access (queue_id) where principal is not null;

comment on table eve.access is
'Who may do what in a queue. A row counts only for a caller who also has the matching role eve_*. A principal unites rotating logins under one name.';

create function eve._member(actor text, role text)
returns boolean
language plpgsql
stable
as $$
begin
    if actor = role then
        return true;
    end if;
    if pg_catalog.to_regrole(pg_catalog.quote_ident(role)) is null then
        return false;
    end if;
    -- is_superuser follows SET ROLE and SET SESSION AUTHORIZATION, and nobody can set it.
    if pg_catalog.current_setting('is_superuser') = 'on' then
        return exists (
            select from pg_catalog.pg_auth_members as m
            where m.member = pg_catalog.to_regrole(pg_catalog.quote_ident(actor))
                and m.roleid = pg_catalog.to_regrole(pg_catalog.quote_ident(role)));
    end if;
    return pg_catalog.pg_has_role(actor::name, role::name, 'USAGE');
end
$$;

comment on function eve._member(text, text) is
'Whether the caller''s actor has a role: by inherited membership, as a superuser by direct membership only.';

commit;
