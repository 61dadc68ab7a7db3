-- lease/housekeep.sql · the queue drives itself: once a second, by a caller that comes by. Appends: lease_expired, released, held, expired.
begin;

create function eve._mark(queue_id bigint, rank smallint)
returns timestamptz
language plpgsql
stable
as $$
begin
    return coalesce((
        select m.since from eve.mark as m
        where m.queue_id = _mark.queue_id and m.lane = 0 and m.rank = _mark.rank
        order by m.since desc limit 1), '-infinity');
end
$$;

comment on function eve._mark(bigint, smallint) is
'Where the search for what is due begins: time triggers (1), deadlines (2), first (3) and second (4) looks.';

create function eve._release_due(
    c eve.caller,
    at timestamptz,
    at_most integer,
    inout faults jsonb,
    out released integer
)
returns record
language plpgsql
as $$
declare
    due record;
    holds jsonb;
begin
    released := 0;
    for due in
        select h.item, h.reason, h.ref, h.due_at
        from eve.hold as h
        where h.queue_id = c.queue_id and h.due_at <= _release_due.at
            and h.due_at >= eve._mark(c.queue_id, 1::smallint)
        order by h.due_at limit at_most
        for update skip locked
    loop
        begin
            if eve._lock_holds(c, due.item, false) then
                select coalesce(pg_catalog.jsonb_agg(h.value), '[]') into holds
                from pg_catalog.jsonb_array_elements(eve._holds(c.queue_id, due.item)) as h (value)
                where not (h.value ->> 'reason' = due.reason and coalesce(h.value ->> 'ref', '') = due.ref);
                -- What became useless meanwhile expires; nobody is waited for.
                if holds <> '[]' or eve._hopeless(c.queue_id, due.item, at) is null then
                    perform eve._settle_holds(c, due.item, at, holds, due.reason, due.due_at);
                    released := released + 1;
                elsif eve._expire_one(c, due.item, at, eve._hopeless(c.queue_id, due.item, at)) then
                    released := released + 1;
                end if;
            end if;
        exception when others then
            faults := faults || pg_catalog.jsonb_build_object(
                'item', due.item, 'act', 'released', 'sqlstate', sqlstate, 'because', sqlerrm);
        end;
    end loop;
end
$$;

comment on function eve._release_due(eve.caller, timestamptz, integer, jsonb) is
'Fire the time triggers that are due.';

create function eve._look_again(
    c eve.caller,
    at timestamptz,
    at_most integer,
    changes integer,
    inout faults jsonb,
    out looked integer
)
returns record
language plpgsql
as $$
declare
    settled bigint[];
    stale bigint[];
    child bigint;
begin
    looked := 0;
    -- First look: the row is marked, in a subtransaction, whose id is later than that of anybody who missed the row.
    begin
        with due as materialized (
            select h.item, h.reason, h.ref from eve.hold as h
            where h.queue_id = c.queue_id and not h.looked and h.look_at <= _look_again.at
                and h.look_at >= eve._mark(c.queue_id, 3::smallint)
            order by h.look_at limit at_most
            for update skip locked
        )
        update eve.hold as h set looked = true, look_at = _look_again.at + interval '1 s'
        from due as d
        where h.queue_id = c.queue_id and h.item = d.item and h.reason = d.reason and h.ref = d.ref;
    exception when others then
        faults := faults || pg_catalog.jsonb_build_object(
            'act', 'looked', 'sqlstate', sqlstate, 'because', sqlerrm);
    end;
    -- Second look: all who may have missed it have ended. What they did is visible now.
    settled := array(
        select d.item
        from (
            select h.item, h.xmin as writer from eve.hold as h
            where h.queue_id = c.queue_id and h.looked and h.look_at <= _look_again.at
                and h.look_at >= eve._mark(c.queue_id, 4::smallint)
            order by h.look_at limit at_most
        ) as d
        where eve._settled(d.writer)
        group by d.item order by d.item);
    if settled = '{}' then
        return;
    end if;
    stale := eve._stale(c.queue_id, settled, at);
    with done as materialized (
        select h.item, h.reason, h.ref from eve.hold as h
        where h.queue_id = c.queue_id and h.item = any (settled) and h.item <> all (stale)
            and h.looked and h.look_at is not null and eve._settled(h.xmin)
        for update skip locked
    )
    update eve.hold as h set look_at = null
    from done as d
    where h.queue_id = c.queue_id and h.item = d.item and h.reason = d.reason and h.ref = d.ref;
    foreach child in array stale[:changes] loop
        begin
            if eve._lock_holds(c, child, false) and eve._lock_children(c, array[child], false) then
                looked := looked + eve._rederive(c, child, at, 'looked at again')::integer;
            end if;
        exception when others then
            faults := faults || pg_catalog.jsonb_build_object(
                'item', child, 'act', 'looked', 'sqlstate', sqlstate, 'because', sqlerrm);
        end;
    end loop;
end
$$;

comment on function eve._look_again(eve.caller, timestamptz, integer, integer, jsonb) is
'Look twice at fresh holds that others release: who fired their trigger while they were being written saw nothing to release. Answers how many hold sets changed.';

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
            and d.at >= eve._mark(c.queue_id, 2::smallint)
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
    pool text;
    number integer;
    phase text := 'expired';
begin
    select x.queue_state as state, x.lane into stored from eve.work_item as x
    where x.queue_id = c.queue_id and x.item = _expire_one.item;
    s := stored.state;
    -- Housekeeping waits for nobody, not for the doors of waiting children either.
    if not eve._lock_children(c, array[item], false) then
        return false;
    end if;
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
        returning h.pool, h.number into pool, number;
        if pool is null then
            return false;
        end if;
    elsif s.phase <> 'reported' then
        return false;
    end if;
    if s.effect_started or s.phase = 'reported' then
        phase := 'uncertain';
    end if;
    perform eve._append(c, item, 'expired', at,
        phase => phase,
        reason => case phase when 'uncertain' then 'reconciliation_required' else reason end,
        data => pg_catalog.jsonb_build_object('because', reason));
    if pool is not null then
        perform eve._put_slot(c.queue_id, pool, number);
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
language plpgsql
as $$
begin
    -- One statement, one snapshot. Nothing is sought beyond the probe: a mark goes no further.
    insert into eve.mark (queue_id, lane, rank, since)
    select _advance_due.queue_id, 0, n.rank, n.since
    from (
        select b.at from eve.probe as b
        where b.queue_id = _advance_due.queue_id
            and b.xid < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())
        order by b.xid desc limit 1
    ) as p
    cross join lateral (
        select r.rank::smallint as rank, coalesce((
            select m.since from eve.mark as m
            where m.queue_id = _advance_due.queue_id and m.lane = 0 and m.rank = r.rank
            order by m.since desc limit 1), '-infinity') as was
        from pg_catalog.generate_series(1, 4) as r (rank)
    ) as o
    cross join lateral (
        select o.rank, coalesce(case o.rank
            when 1 then (
                select h.due_at from eve.hold as h
                where h.queue_id = _advance_due.queue_id and h.due_at >= o.was and h.due_at < p.at
                order by h.due_at limit 1)
            when 2 then (
                select d.at from eve.deadline as d
                where d.queue_id = _advance_due.queue_id and d.at >= o.was and d.at < p.at
                order by d.at limit 1)
            when 3 then (
                select h.look_at from eve.hold as h
                where h.queue_id = _advance_due.queue_id and not h.looked
                    and h.look_at >= o.was and h.look_at < p.at
                order by h.look_at limit 1)
            when 4 then (
                select h.look_at from eve.hold as h
                where h.queue_id = _advance_due.queue_id and h.looked
                    and h.look_at >= o.was and h.look_at < p.at
                order by h.look_at limit 1)
        end, p.at) as since
    ) as n
    where n.since > o.was
    on conflict on constraint mark_pkey do nothing;
end
$$;

comment on function eve._advance_due(bigint) is
'Move the marks of time triggers, deadlines and looks: no earlier instant can appear below them.';

create function eve._prune(queue_id bigint)
returns void
language plpgsql
as $$
begin
    -- Of what is read highest first, only the newest matter. The caller holds the keeper row: nobody else prunes.
    delete from eve.tick as t where t.queue_id = _prune.queue_id
        and t.at < (select max(k.at) from eve.tick as k where k.queue_id = _prune.queue_id) - interval '10 s';
    delete from eve.mark as m where m.queue_id = _prune.queue_id
        and m.since < (select max(k.since) from eve.mark as k
            where k.queue_id = m.queue_id and k.lane = m.lane and k.rank = m.rank);
    delete from eve.slot_mark as m where m.queue_id = _prune.queue_id
        and m.seq < (select max(k.seq) from eve.slot_mark as k
            where k.queue_id = m.queue_id and k.pool = m.pool and k.exact = m.exact);
    delete from eve.probe as p where p.queue_id = _prune.queue_id
        and p.xid < (select max(k.xid) from eve.probe as k
            where k.queue_id = _prune.queue_id
                and k.xid < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()));
    perform eve._forget_effects(queue_id, 1000);
end
$$;

comment on function eve._prune(bigint) is
'Drop ticks, marks and probes that newer ones have replaced, and effect identities that nobody waits for.';

create function eve._bound_idle(cap interval)
returns void
language plpgsql
as $$
declare
    idle interval := pg_catalog.current_setting('idle_in_transaction_session_timeout')::interval;
begin
    if idle = interval '0' or idle > cap then
        perform pg_catalog.set_config('idle_in_transaction_session_timeout',
            ceil(extract(epoch from cap) * 1000)::bigint::text, true);
    end if;
end
$$;

comment on function eve._bound_idle(interval) is
'Bound for the rest of this transaction how long it may idle: what it holds, others wait for.';

create function eve._housekeep(c eve.caller, at timestamptz)
returns void
language plpgsql
as $$
declare
    faults jsonb := '[]';
    done integer;
    budget integer := 16;
    place record;
    keeps boolean;
begin
    if at < c.kept + interval '1 s'
        or pg_catalog.current_setting('transaction_isolation') <> 'read committed' then
        return;
    end if;
    perform from eve.keeper as k where k.queue_id = c.queue_id for update skip locked;
    keeps := found;
    -- A keeper that left its transaction open is passed after three seconds: all that follows skips what is locked.
    if not keeps and at < c.kept + interval '3 s' or exists (
        -- Another caller kept house since this one looked at the tick.
        select from eve.tick as t where t.queue_id = c.queue_id and t.at > _housekeep.at - interval '1 s') then
        return;
    end if;
    insert into eve.tick (queue_id, at) values (c.queue_id, _housekeep.at)
    on conflict on constraint tick_pkey do nothing;
    select r.recovered, r.faults into done, faults from eve._recover_lapsed(c, at, budget, null, faults) as r;
    budget := budget - done;
    if budget > 0 then
        select r.released, r.faults into done, faults from eve._release_due(c, at, budget, faults) as r;
        budget := budget - done;
    end if;
    if budget > 0 then
        select r.expired, r.faults into done, faults from eve._expire_due(c, at, budget, faults) as r;
        budget := budget - done;
    end if;
    if budget > 0 then
        select r.faults into faults from eve._look_again(c, at, 256, budget, faults) as r;
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
    perform eve._advance_slots(c.queue_id, p.pool) from eve.pool as p where p.queue_id = c.queue_id;
    if c.limited then
        perform eve._advance_calls(c.queue_id);
    end if;
    perform eve._probe(c.queue_id);
    if keeps then
        perform eve._sum_up(c.queue_id, at);
        if budget > 0 then
            select r.faults into faults from eve._refresh(c, at, budget, faults) as r;
        end if;
    end if;
    if keeps and pg_catalog.random() < 0.02 then
        perform eve._prune(c.queue_id);
    end if;
    if budget < 16 then
        -- What became due here is locked until this transaction ends.
        perform eve._bound_idle(interval '15 min');
    end if;
    if faults <> '[]' then
        raise warning using message = 'eve skipped rows in housekeeping', detail = faults::text;
    end if;
end
$$;

comment on function eve._housekeep(eve.caller, timestamptz) is
'Once a second a queue, by whoever gets the keeper row: at most 16 due facts become events, marks advance. Commits and rolls back with its caller.';

commit;
