-- lease/housekeep.sql · the queue drives itself: once a second, by a caller that comes by. Appends: lease_expired, released, held, expired.
begin;

create function eve._release_due(c eve.caller, at timestamptz, at_most integer, inout faults jsonb, out released integer)
returns record
language plpgsql
as $$
declare
    due record;
    holds jsonb;
begin
    released := 0;
    for due in
        select h.item, h.reason, h.ref, h.trigger, h.due_at, h.recheck
        from eve.hold as h
        where h.queue_id = c.queue_id and h.due_at <= _release_due.at
            and h.due_at >= coalesce((
                select m.since from eve.mark as m
                where m.queue_id = c.queue_id and m.lane = 0 and m.rank = 1
                order by m.since desc limit 1), '-infinity')
        order by h.due_at limit at_most
        for update skip locked
    loop
        begin
            if due.trigger = 'dependency' and due.recheck is null then
                -- Who finished a parent while these edges were being written has an older transaction id than this one.
                update eve.hold as h
                set recheck = pg_catalog.pg_current_xact_id(), due_at = at + interval '1 s'
                where h.queue_id = c.queue_id and h.item = due.item
                    and h.reason = due.reason and h.ref = due.ref;
            elsif due.trigger = 'dependency'
                and due.recheck >= pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())
                -- One that this server has not assigned yet was restored from another: nobody is left to wait for.
                and (due.recheck < pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())
                    or due.recheck = pg_catalog.pg_current_xact_id()) then
                update eve.hold as h set due_at = at + interval '1 s'
                where h.queue_id = c.queue_id and h.item = due.item
                    and h.reason = due.reason and h.ref = due.ref;
            elsif not eve._lock_holds(c, due.item, false) then
                continue;
            elsif due.trigger = 'dependency' then
                -- Settled. From now on a daily look is enough.
                update eve.hold as h set due_at = at + interval '1 day', recheck = null
                where h.queue_id = c.queue_id and h.item = due.item
                    and h.reason = due.reason and h.ref = due.ref;
                if eve._rederive(c, due.item, at, 'edges looked at again') then
                    released := released + 1;
                end if;
            else
                select coalesce(pg_catalog.jsonb_agg(h.value), '[]') into holds
                from pg_catalog.jsonb_array_elements(eve._holds(c.queue_id, due.item)) as h (value)
                where not (h.value ->> 'reason' = due.reason and coalesce(h.value ->> 'ref', '') = due.ref);
                perform eve._settle_holds(c, due.item, at, holds, due.reason, due.due_at);
                released := released + 1;
            end if;
        exception when others then
            faults := faults || pg_catalog.jsonb_build_object(
                'item', due.item, 'act', 'released', 'sqlstate', sqlstate, 'because', sqlerrm);
        end;
    end loop;
end
$$;

comment on function eve._release_due(eve.caller, timestamptz, integer, jsonb) is
'Fire the time triggers that are due, and look again at edges whose writers have all ended.';

create function eve._expire_due(c eve.caller, at timestamptz, at_most integer, inout faults jsonb, out expired integer)
returns record
language plpgsql
as $$
declare
    due record;
    phase text;
begin
    expired := 0;
    for due in
        select d.at, d.item from eve.deadline as d
        where d.queue_id = c.queue_id and d.at <= _expire_due.at
            and d.at >= coalesce((
                select m.since from eve.mark as m
                where m.queue_id = c.queue_id and m.lane = 0 and m.rank = 2
                order by m.since desc limit 1), '-infinity')
        order by d.at limit at_most
        for update skip locked
    loop
        begin
            if eve._expire_one(c, due.item, at, 'deadline_passed') then
                expired := expired + 1;
            end if;
            select (w.queue_state).phase into phase from eve.work_item as w
            where w.queue_id = c.queue_id and w.item = due.item;
            if phase not in ('held', 'ready', 'leased', 'reported') then
                delete from eve.deadline as d
                where d.queue_id = c.queue_id and d.at = due.at and d.item = due.item;
            end if;
        exception when others then
            faults := faults || pg_catalog.jsonb_build_object(
                'item', due.item, 'act', 'expired', 'sqlstate', sqlstate, 'because', sqlerrm);
        end;
    end loop;
end
$$;

comment on function eve._expire_due(eve.caller, timestamptz, integer, jsonb) is
'Expire items whose deadline came; one whose lease row is locked is left for the next look.';

create function eve._expire_one(c eve.caller, item bigint, at timestamptz, reason text)
returns boolean
language plpgsql
as $$
declare
    s eve.state;
    stored record;
    slot record;
    phase text := 'expired';
begin
    select x.queue_state as state, x.lane into stored from eve.work_item as x
    where x.queue_id = c.queue_id and x.item = _expire_one.item;
    s := stored.state;
    if s.phase = 'ready' then
        perform from eve.ready as r
        where r.queue_id = c.queue_id and r.lane = stored.lane and r.rank = s.rank and r.late = s.late
            and r.ready_since = s.ready_since and r.item = _expire_one.item
        for update skip locked;
        if not found then
            return false;
        end if;
    elsif s.phase = 'held' then
        if not eve._lock_holds(c, item, false) then
            return false;
        end if;
    elsif s.phase = 'leased' then
        delete from eve.held_slot as h
        where h.queue_id = c.queue_id and h.item = _expire_one.item and h.token = (
            select k.token from eve.held_slot as k
            where k.queue_id = c.queue_id and k.item = _expire_one.item and k.token = s.token
            for update skip locked)
        returning h.pool, h.number into slot;
        if slot.pool is null then
            return false;
        end if;
        if s.effect_started then
            phase := 'uncertain';
        end if;
    elsif s.phase = 'reported' then
        phase := 'uncertain';
    else
        return false;
    end if;
    perform eve._append(c, item, 'expired', at,
        phase => phase,
        reason => case phase when 'uncertain' then 'reconciliation_required' else reason end,
        data => pg_catalog.jsonb_build_object('because', reason));
    if slot.pool is not null then
        perform eve._put_slot(c.queue_id, slot.pool, slot.number);
    end if;
    if phase = 'expired' then
        perform eve._close_edges(c, item, phase, at);
    end if;
    return true;
end
$$;

comment on function eve._expire_one(eve.caller, bigint, timestamptz, text) is
'Expire one item through its door row; false when the row is locked or the phase does not expire.';

create function eve._advance_due(queue_id bigint)
returns void
language sql
begin atomic
    insert into eve.mark (queue_id, lane, rank, since)
    select _advance_due.queue_id, 0, n.rank, n.since
    from (
        select
            p.at as settled,
            pg_catalog.unnest(array[0, 1, 2]::smallint[]) as rank,
            pg_catalog.unnest(array[
                least(p.at, (select h.expires_at from eve.held_slot as h
                    where h.queue_id = _advance_due.queue_id and h.expires_at >= coalesce((
                        select m.since from eve.mark as m
                        where m.queue_id = h.queue_id and m.lane = 0 and m.rank = 0
                        order by m.since desc limit 1), '-infinity')
                    order by h.expires_at limit 1)),
                least(p.at, (select h.due_at from eve.hold as h
                    where h.queue_id = _advance_due.queue_id and h.due_at >= coalesce((
                        select m.since from eve.mark as m
                        where m.queue_id = h.queue_id and m.lane = 0 and m.rank = 1
                        order by m.since desc limit 1), '-infinity')
                    order by h.due_at limit 1)),
                least(p.at, (select d.at from eve.deadline as d
                    where d.queue_id = _advance_due.queue_id and d.at >= coalesce((
                        select m.since from eve.mark as m
                        where m.queue_id = d.queue_id and m.lane = 0 and m.rank = 2
                        order by m.since desc limit 1), '-infinity')
                    order by d.at limit 1))
            ]) as since
        from (
            select p.at from eve.probe as p
            where p.queue_id = _advance_due.queue_id
                and p.xid < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())
            order by p.xid desc limit 1
        ) as p
    ) as n
    where n.since > coalesce((
        select m.since from eve.mark as m
        where m.queue_id = _advance_due.queue_id and m.lane = 0 and m.rank = n.rank
        order by m.since desc limit 1), '-infinity')
    on conflict do nothing;
end;

comment on function eve._advance_due(bigint) is
'Move the marks of due leases, due holds and deadlines: no earlier instant can appear below them.';

create function eve._housekeep(c eve.caller, at timestamptz)
returns void
language plpgsql
as $$
declare
    faults jsonb := '[]';
    done integer;
    budget integer := 16;
    place record;
begin
    if at < c.tick + interval '1 s'
        or pg_catalog.current_setting('transaction_isolation') <> 'read committed' then
        return;
    end if;
    perform from eve.keeper as k where k.queue_id = c.queue_id for update skip locked;
    if not found then
        return;
    end if;
    insert into eve.tick (queue_id, at) values (c.queue_id, _housekeep.at)
    on conflict on constraint tick_pkey do nothing;
    select r.recovered, r.faults into done, faults from eve._recover_lapsed(c, at, budget, faults) as r;
    budget := budget - done;
    if budget > 0 then
        select r.released, r.faults into done, faults from eve._release_due(c, at, budget, faults) as r;
        budget := budget - done;
    end if;
    if budget > 0 then
        select r.expired, r.faults into done, faults from eve._expire_due(c, at, budget, faults) as r;
    end if;
    for place in
        select distinct k.lane, r.rank::smallint as rank
        from eve.work_class as k
        cross join pg_catalog.generate_series(0, 3) as r (rank)
        where k.queue_id = c.queue_id
    loop
        perform eve._advance(c.queue_id, place.lane, place.rank);
    end loop;
    perform eve._advance_due(c.queue_id);
    perform eve._probe(c.queue_id);
    if faults <> '[]' then
        raise warning using message = 'eve skipped rows in housekeeping', detail = faults::text;
    end if;
end
$$;

comment on function eve._housekeep(eve.caller, timestamptz) is
'Once a second a queue, by whoever gets the keeper row: at most 16 due facts become events, marks advance. Commits and rolls back with its caller.';

commit;
