-- lease/fence.sql · the guard that every holder write calls first. Raises: stale_fence, not_lease_holder.
begin;

create type eve.held as (
    item bigint,
    token bigint,
    pool text,
    number integer,
    principal text,
    worker text,
    acquired_at timestamptz,
    expires_at timestamptz,
    fault text
);

comment on type eve.held is
'A lease row as a holder write found it; fault is the refusal, or null.';

create function eve._absent_fault(c eve.caller, item bigint, token bigint)
returns text
language plpgsql
stable
as $$
declare
    s eve.state;
begin
    s := (select w.queue_state from eve.work_item as w
        where w.queue_id = c.queue_id and w.item = _absent_fault.item and w.item > 0);
    if s.version is null then
        return 'unknown_item';
    end if;
    -- The right token without a lease row: the lease has lapsed and was recovered.
    return case when token = s.token and token > 0 then 'not_lease_holder' else 'stale_fence' end;
end
$$;

comment on function eve._absent_fault(eve.caller, bigint, bigint) is
'The refusal where no lease row has the token: stale_fence, not_lease_holder when the last lease lapsed, or unknown_item.';

create function eve._fence_read(c eve.caller, item bigint, token bigint)
returns eve.held
language plpgsql
as $$
declare
    h eve.held;
begin
    -- KEY SHARE: a renewal passes, an end waits, a recovery skips.
    select k.item, k.token, k.pool, k.number, k.principal, k.worker, k.acquired_at, k.expires_at, null
    into h
    from eve.held_slot as k
    where k.queue_id = c.queue_id and k.item = _fence_read.item and k.token = _fence_read.token
    for key share;
    h.fault := case
        when h.token is null then eve._absent_fault(c, item, token)
        when h.principal <> c.principal then 'not_lease_holder'
        when h.expires_at <= eve._clock(c) then 'not_lease_holder'
    end;
    return h;
end
$$;

comment on function eve._fence_read(eve.caller, bigint, bigint) is
'Lock a lease row so that its end waits for this transaction, and judge it: token, then principal, then liveness.';

create function eve._fence_write(c eve.caller, item bigint, token bigint)
returns eve.held
language plpgsql
as $$
declare
    h eve.held;
begin
    -- Writers of one lease follow each other; who only fences passes. Judged after the lock.
    select k.item, k.token, k.pool, k.number, k.principal, k.worker, k.acquired_at, k.expires_at, null
    into h
    from eve.held_slot as k
    where k.queue_id = c.queue_id and k.item = _fence_write.item and k.token = _fence_write.token
    for no key update;
    h.fault := case
        when h.token is null then eve._absent_fault(c, item, token)
        when h.principal <> c.principal then 'not_lease_holder'
        when h.expires_at <= eve._clock(c) then 'not_lease_holder'
    end;
    return h;
end
$$;

comment on function eve._fence_write(eve.caller, bigint, bigint) is
'Lock a lease row for a write that keeps the lease, and judge it: token, then principal, then liveness.';

create function eve._fence_take(c eve.caller, item bigint, token bigint)
returns eve.held
language plpgsql
as $$
declare
    h eve.held;
begin
    delete from eve.held_slot as k
    where k.queue_id = c.queue_id and k.item = _fence_take.item and k.token = _fence_take.token
        and k.principal = c.principal
    returning k.item, k.token, k.pool, k.number, k.principal, k.worker, k.acquired_at, k.expires_at, null
    into h;
    if h.token is null then
        return eve._fence_read(c, item, token);
    end if;
    -- The clock is read after the lock: a lease that lapsed while this call waited is put back as it was.
    if h.expires_at <= eve._clock(c) then
        insert into eve.held_slot (
            queue_id, item, token, pool, number, principal, worker, acquired_at, expires_at)
        values (c.queue_id, h.item, h.token, h.pool, h.number, h.principal, h.worker, h.acquired_at, h.expires_at);
        h.fault := 'not_lease_holder';
    end if;
    return h;
end
$$;

comment on function eve._fence_take(eve.caller, bigint, bigint) is
'Take a lease row, the door row of a finish, when the lease stands; else judge it like eve._fence_read.';

commit;
