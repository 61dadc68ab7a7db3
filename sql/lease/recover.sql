-- lease/recover.sql · three kinds of lost leases, three events, each guarded by the lease observed. Appends: lease_expired, lease_missing, lease_superseded.
begin;

create function eve._recover_one(c eve.caller, item bigint, token bigint, kind text, at timestamptz)
returns text
language plpgsql
as $$
declare
    s eve.state;
    stored record;
    policy eve.policy;
    phase text;
    keeps boolean := false;
begin
    select x.queue_state as state, x.class_id into stored
    from eve.work_item as x
    where x.queue_id = c.queue_id and x.item = _recover_one.item;
    s := stored.state;
    if kind = 'lease_superseded' then
        -- The row's token is not the ledger's. A live lease under the current token stands.
        keeps := exists (
            select from eve.held_slot as h
            where h.queue_id = c.queue_id and h.item = _recover_one.item and h.token = s.token);
    elsif s.phase is distinct from 'leased' or s.token <> token then
        return null;
    end if;
    if s.phase is distinct from 'leased' then
        return null;
    end if;
    policy := eve._policy(c.queue_id, stored.class_id, s.revision);
    phase := case when keeps then 'leased'
        else eve._after_loss(c.queue_id, item, policy, s, at) end;
    perform eve._append(c, item, kind, at,
        phase => phase,
        worker => s.worker,
        token => token,
        pool => s.pool,
        slot => s.slot,
        reason => case phase
            when 'quarantined' then 'max attempts exceeded'
            when 'uncertain' then 'reconciliation_required'
            else kind end,
        data => pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
            'lease', pg_catalog.jsonb_build_object(
                'token', token, 'principal', s.principal, 'worker', s.worker,
                'acquired_at', s.acquired_at, 'expires_at', s.expires_at),
            'quarantine', case when phase = 'quarantined'
                then eve._quarantine_record(c, item, s, 'max attempts exceeded', at) end,
            'owner', case when phase = 'uncertain' then policy.retry_owner end,
            'lookup', case when phase = 'uncertain' then eve._lookup(policy) end)));
    return phase;
end
$$;

comment on function eve._recover_one(eve.caller, bigint, bigint, text, timestamptz) is
'Recover one item by its own kind of event if the lease observed is still the one in the ledger; the phase reached, or null for a no-op. The caller has taken the lease row.';

create function eve._recover_lapsed(
    c eve.caller,
    at timestamptz,
    at_most integer,
    only_pool text,
    inout faults jsonb,
    out recovered integer
)
returns record
language plpgsql
as $$
declare
    lease record;
    slot record;
begin
    recovered := 0;
    for lease in
        select l.item, l.token from eve._live_leases(c.queue_id, only_pool) as l
        where l.expires_at <= _recover_lapsed.at
        order by l.expires_at, l.item limit at_most
    loop
        -- One bad row is reported and skipped; so is one that was renewed or taken meanwhile.
        begin
            delete from eve.held_slot as h
            where h.queue_id = c.queue_id and h.item = lease.item and h.token = (
                select k.token from eve.held_slot as k
                where k.queue_id = c.queue_id and k.item = lease.item and k.token = lease.token
                    and k.expires_at <= _recover_lapsed.at
                for update skip locked)
            returning h.pool, h.number into slot;
            continue when slot.pool is null;
            perform eve._recover_one(c, lease.item, lease.token, 'lease_expired', at);
            perform eve._put_slot(c.queue_id, slot.pool, slot.number);
            recovered := recovered + 1;
        exception when others then
            faults := faults || pg_catalog.jsonb_build_object(
                'item', lease.item, 'act', 'lease_expired', 'sqlstate', sqlstate, 'because', sqlerrm);
        end;
    end loop;
end
$$;

comment on function eve._recover_lapsed(eve.caller, timestamptz, integer, text, jsonb) is
'Recover lapsed leases, oldest first; rows that others lock are skipped, rows that fail are reported.';

create function eve._recover_orphans(c eve.caller, at timestamptz, inout faults jsonb, out recovered integer)
returns record
language plpgsql
as $$
declare
    orphan record;
begin
    recovered := 0;
    for orphan in
        select h.item, h.token, h.pool, h.number
        from eve.held_slot as h
        left join eve.work_item as w on w.queue_id = h.queue_id and w.item = h.item
        where h.queue_id = c.queue_id
            and ((w.queue_state).phase is distinct from 'leased' or (w.queue_state).token <> h.token)
        order by h.item, h.token
        for update of h skip locked
    loop
        begin
            perform eve._recover_one(c, orphan.item, orphan.token, 'lease_superseded', at);
            delete from eve.held_slot as h
            where h.queue_id = c.queue_id and h.item = orphan.item and h.token = orphan.token;
            recovered := recovered + 1;
        exception when others then
            faults := faults || pg_catalog.jsonb_build_object(
                'item', orphan.item, 'act', 'lease_superseded', 'sqlstate', sqlstate, 'because', sqlerrm);
        end;
    end loop;
    for orphan in
        select w.item, (w.queue_state).token as token
        from eve.work_item as w
        where w.queue_id = c.queue_id and (w.queue_state).phase = 'leased'
            and not exists (
                select from eve.held_slot as h where h.queue_id = w.queue_id and h.item = w.item)
        order by w.item
        for update skip locked
    loop
        begin
            if eve._recover_one(c, orphan.item, orphan.token, 'lease_missing', at) is not null then
                recovered := recovered + 1;
            end if;
        exception when others then
            faults := faults || pg_catalog.jsonb_build_object(
                'item', orphan.item, 'act', 'lease_missing', 'sqlstate', sqlstate, 'because', sqlerrm);
        end;
    end loop;
end
$$;

comment on function eve._recover_orphans(eve.caller, timestamptz, jsonb) is
'Recover leases whose row is missing or whose token is not the ledger''s: looks at every leased item of the queue.';

create function eve._repair_slots(c eve.caller)
returns integer
language plpgsql
as $$
declare
    repaired integer;
    extra integer;
    place record;
begin
    -- What is free twice, or free while held, is taken out; then the number is made right.
    delete from eve.free_slot as f
    where f.queue_id = c.queue_id and (
        exists (
            select from eve.free_slot as o
            where o.queue_id = f.queue_id and o.pool = f.pool and o.number = f.number and o.seq < f.seq)
        or exists (
            select from eve.held_slot as h
            where h.queue_id = f.queue_id and h.pool = f.pool and h.number = f.number));
    get diagnostics repaired = row_count;
    for place in
        -- One statement, one snapshot: a lease that begins or ends meanwhile is counted once.
        select p.pool, p.slots + p.surplus
            - (select pg_catalog.count(*) from eve.free_slot as f
                where f.queue_id = p.queue_id and f.pool = p.pool)::integer
            - (select pg_catalog.count(*) from eve.held_slot as h
                where h.queue_id = p.queue_id and h.pool = p.pool)::integer as missing
        from eve.pool as p
        where p.queue_id = c.queue_id
        order by p.pool
    loop
        if place.missing > 0 then
            perform eve._add_slots(c.queue_id, place.pool, place.missing);
        elsif place.missing < 0 then
            extra := -place.missing - eve._drop_slots(c.queue_id, place.pool, -place.missing);
            update eve.pool as p set surplus = p.surplus + extra
            where p.queue_id = c.queue_id and p.pool = place.pool and extra > 0;
        end if;
        repaired := repaired + pg_catalog.abs(place.missing);
    end loop;
    update eve.pool as p set numbers = h.number
    from (
        select x.pool, max(x.number) as number from eve.held_slot as x
        where x.queue_id = c.queue_id group by x.pool
    ) as h
    where p.queue_id = c.queue_id and p.pool = h.pool and p.numbers < h.number;
    return repaired;
end
$$;

comment on function eve._repair_slots(eve.caller) is
'Make free and held slots together the authorised ones again. Runs only in a sweep, with nothing to do unless rows were lost.';

commit;
