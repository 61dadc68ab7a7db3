-- api/audit.sql · replay, compare, rebuild: the ledger is the truth, the rest a cache. Reads only, but for the rebuild.
begin;

create function public.eve_replay(queue text, item bigint, as_of timestamptz default null)
returns jsonb
language plpgsql
stable
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    s eve.state;
begin
    c := eve._look(queue, '{verifier,operator,human,auditor}');
    if not exists (select from eve.ledger as l where l.queue_id = c.queue_id and l.item = eve_replay.item) then
        perform eve._raise('P0002', format('unknown item %s', coalesce(eve_replay.item::text, 'null')), null,
            'Items are numbered by eve_submit.');
    end if;
    s := (select eve.replay(eve._event(l.kind, l.phase, l.at, l.principal, l.worker, l.epoch, l.revision,
            l.token, l.pool, l.slot, l.due_at, l.rank, l.attempts, l.reason) order by l.version)
        from eve.ledger as l
        where l.queue_id = c.queue_id and l.item = eve_replay.item
            and (eve_replay.as_of is null or l.at <= eve_replay.as_of));
    return to_jsonb(s);
end
$$;

comment on function public.eve_replay(text, bigint, timestamptz) is
'The state of an item folded anew from its events, now or as of an instant (null before its first). Refuses an unknown item (P0002).';

create function eve._refold(q bigint, item bigint, out state eve.state, out because text)
returns record
language plpgsql
stable
as $$
begin
    state := (select eve.replay(eve._event(l.kind, l.phase, l.at, l.principal, l.worker, l.epoch, l.revision,
            l.token, l.pool, l.slot, l.due_at, l.rank, l.attempts, l.reason) order by l.version)
        from eve.ledger as l where l.queue_id = q and l.item = _refold.item);
exception when others then
    because := sqlerrm;
end
$$;

comment on function eve._refold(bigint, bigint) is
'The fold of one history, or why it cannot be folded: a history that was tampered with may hold an event that the step refuses.';

create function eve._audit_queue(q bigint)
returns jsonb
language plpgsql
stable
as $$
begin
    -- What the events of item 0 say, last word first, against the projections that everybody reads.
    return (
        with said as materialized (
            select l.version, l.kind, l.epoch, l.data from eve.ledger as l where l.queue_id = q and l.item = 0
        ), access_said as (
            select s.role, s.capability, s.principal
            from (
                select distinct on (e.data ->> 'role', e.data ->> 'capability') e.data ->> 'role' as role,
                    e.data ->> 'capability' as capability, e.data ->> 'principal' as principal, e.kind
                from said as e where e.kind in ('access_granted', 'access_revoked')
                order by e.data ->> 'role', e.data ->> 'capability', e.version desc
            ) as s
            where s.kind = 'access_granted'
        ), access_is as (
            select x.role, x.capability, x.principal from eve.access as x where x.queue_id = q
        ), decision_said as (
            select distinct on (e.data ->> 'decision') (e.data ->> 'decision')::bigint as decision,
                case e.kind when 'decision_proposed' then 'open' else pg_catalog.substr(e.kind, 10) end as phase
            from said as e
            where e.kind in ('decision_proposed', 'decision_accepted', 'decision_declined')
            order by e.data ->> 'decision', e.version desc
        ), decision_is as (
            select d.decision, d.phase from eve.decision as d where d.queue_id = q
        ), class_said as (
            select e.data ->> 'class' as name, (e.data ->> 'revision')::integer as revision,
                pg_catalog.jsonb_populate_record(null::eve.policy, e.data -> 'policy') as policy,
                e.data -> 'answers' as answers
            from said as e where e.kind = 'class_defined'
        ), class_is as (
            select k.name, r.revision, r.policy, r.answers
            from eve.class_revision as r
            join eve.work_class as k on k.queue_id = r.queue_id and k.class_id = r.class_id
            where r.queue_id = q
        ), pool_said as (
            select distinct on (e.data ->> 'pool') e.data ->> 'pool' as pool, (e.data ->> 'slots')::integer as slots
            from said as e where e.kind = 'decision_accepted' and e.data ? 'slots'
            order by e.data ->> 'pool', e.version desc
        ), pool_is as (
            select p.pool, p.slots from eve.pool as p where p.queue_id = q and p.decision is not null
        ), queue_said as (
            select
                coalesce((select e.kind = 'halted' from said as e where e.kind in ('halted', 'resumed')
                    order by e.version desc limit 1), false) as halted,
                coalesce((select max(e.epoch) from said as e where e.kind = 'epoch_started'), 0) as epoch,
                (select e.data ->> 'name' from said as e where e.kind = 'queue_created') as name,
                (select e.data ->> 'durability' from said as e where e.kind = 'queue_created') as durability
        ), queue_is as (
            select k.halted, k.epoch, k.name, k.durability from eve.queue as k where k.queue_id = q
        )
        select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('fault', 'queue', 'item', 0, 'what', f.what))
        from (
            select 'access' as what where exists (
                (table access_said except table access_is) union all (table access_is except table access_said))
            union all
            select 'decision' where exists (
                (table decision_said except table decision_is) union all (table decision_is except table decision_said))
            union all
            select 'class' where exists (
                select from class_said as a full join class_is as b using (name, revision)
                where a.policy is distinct from b.policy or a.answers is distinct from b.answers)
                or exists (
                    select from eve.work_class as k
                    where k.queue_id = q
                        and k.revision <> (select max(a.revision) from class_said as a where a.name = k.name))
            union all
            select 'pool' where exists (
                (table pool_said except table pool_is) union all (table pool_is except table pool_said))
            union all
            select 'queue' where exists (
                (table queue_said except table queue_is) union all (table queue_is except table queue_said))
        ) as f
    );
end
$$;

comment on function eve._audit_queue(bigint) is
'Compare queue, access, decision, class and pool with what the events of item 0 say; the faults, or null.';

create function eve._recount(queue_id bigint, class_id integer)
returns eve.total
language plpgsql
stable
as $$
declare
    t eve.total;
begin
    select
        pg_catalog.count(*) filter (where (w.queue_state).phase = 'held'),
        pg_catalog.count(*) filter (where (w.queue_state).phase = 'ready'),
        pg_catalog.count(*) filter (where (w.queue_state).phase = 'leased'),
        pg_catalog.count(*) filter (where (w.queue_state).phase = 'uncertain'),
        pg_catalog.count(*) filter (where (w.queue_state).phase = 'reported'),
        pg_catalog.count(*) filter (where (w.queue_state).phase = 'completed'),
        pg_catalog.count(*) filter (where (w.queue_state).phase = 'quarantined'),
        coalesce(pg_catalog.sum(w.size) filter (where (w.queue_state).phase in ('held', 'ready')), 0),
        coalesce(pg_catalog.sum(w.size) filter (where eve._live((w.queue_state).phase)), 0)
    into t.held, t.ready, t.leased, t.uncertain, t.reported, t.completed, t.quarantined, t.queued_bytes, t.live_bytes
    from eve.work_item as w
    where w.queue_id = _recount.queue_id and w.class_id = _recount.class_id and w.item > 0;
    select
        pg_catalog.count(*) filter (where s.was is null and s.phase in ('held', 'ready')),
        pg_catalog.count(*) filter (where s.phase in ('completed', 'verified')
            and s.was in ('leased', 'reported', 'uncertain'))
    into t.arrivals, t.completions
    from (
        select l.phase, pg_catalog.lag(l.phase) over (partition by l.item order by l.version) as was
        from eve.work_item as w
        join eve.ledger as l on l.queue_id = w.queue_id and l.item = w.item
        where w.queue_id = _recount.queue_id and w.class_id = _recount.class_id and w.item > 0
    ) as s;
    return t;
end
$$;

comment on function eve._recount(bigint, integer) is
'The sums of a class counted anew from states and ledger.';

create function eve._audit_one(q bigint, name text)
returns eve.audit_answer
language plpgsql
stable
as $$
declare
    a eve.audit_answer;
    faults jsonb := '[]';
    part jsonb;
begin
    a.queue := name;
    select pg_catalog.count(*), pg_catalog.count(distinct l.item) into a.events, a.items
    from eve.ledger as l where l.queue_id = q;
    -- The fold of each history is the stored state.
    begin
        select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('fault', 'replay', 'item', f.item) order by f.item)
        into part
        from (
            select coalesce(r.item, w.item) as item
            from (
                select l.item,
                    eve.replay(eve._event(l.kind, l.phase, l.at, l.principal, l.worker, l.epoch, l.revision,
                        l.token, l.pool, l.slot, l.due_at, l.rank, l.attempts, l.reason) order by l.version) as state
                from eve.ledger as l where l.queue_id = q group by l.item
            ) as r
            full join (select x.item, x.queue_state from eve.work_item as x where x.queue_id = q) as w
                on w.item = r.item
            where r.state is distinct from w.queue_state
            limit 100
        ) as f;
    exception when others then
        -- A history that cannot be folded is a fault of its own and hides no other: each is folded apart.
        select pg_catalog.jsonb_agg(pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
            'fault', 'replay', 'item', f.item, 'because', f.because)) order by f.item)
        into part
        from (
            select coalesce(r.item, w.item) as item, r.because
            from (
                select i.item, o.state, o.because
                from (select distinct l.item from eve.ledger as l where l.queue_id = q) as i
                cross join lateral eve._refold(q, i.item) as o
            ) as r
            full join (select x.item, x.queue_state from eve.work_item as x where x.queue_id = q) as w
                on w.item = r.item
            where r.because is not null or r.state is distinct from w.queue_state
            limit 100
        ) as f;
    end;
    part := case when part is null and eve._audit_queue(q) is null then null
        else coalesce(part, '[]') || coalesce(eve._audit_queue(q), '[]') end;
    a.replay := case when part is null then 'equal' else 'different' end;
    faults := faults || coalesce(part, '[]');
    -- Versions are dense, each hash is that of its event over the one before, and the last is the item's.
    select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('fault', 'chain', 'item', f.item, 'version', f.version)
        order by f.item, f.version)
    into part
    from (
        select x.item, x.version
        from (
            select l.*, pg_catalog.lag(l.hash) over o as before, pg_catalog.row_number() over o as place,
                pg_catalog.lead(l.version) over o as after
            from eve.ledger as l where l.queue_id = q
            window o as (partition by l.item order by l.version)
        ) as x
        left join eve.work_item as w on w.queue_id = q and w.item = x.item
        where x.version <> x.place
            or x.hash is distinct from eve._hash(x.before, x.queue_id, x.item, x.version, x.tx, x.kind, x.phase,
                x.at, x.actor, x.principal, x.worker, x.epoch, x.revision, x.token, x.pool, x.slot, x.due_at,
                x.rank, x.attempts, x.reason, x.data)
            or x.after is null and x.hash is distinct from w.hash
        limit 100
    ) as f;
    a.chain := case when part is null then 'intact' else 'broken' end;
    faults := faults || coalesce(part, '[]');
    select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('fault', 'intent', 'item', i.item) order by i.item)
    into part
    from eve.intent as i
    left join eve.ledger as l on l.queue_id = i.queue_id and l.item = i.item and l.version = 1
    where i.queue_id = q and (
        l.data ->> 'digest' is distinct from pg_catalog.encode(i.payload_digest, 'hex')
        or i.payload is not null and i.payload_digest
            <> pg_catalog.sha256(pg_catalog.convert_to(i.payload::text, 'UTF8')));
    if part is not null then
        a.chain := 'broken';
        faults := faults || part;
    end if;
    -- No number is taken twice; free and held slots together are the authorised ones and the surplus of a
    -- pool that shrank; each is where it is looked for.
    select pg_catalog.jsonb_agg(pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('fault', 'slot',
        'pool', s.pool, 'number', s.number, 'slots', s.slots, 'free', s.free, 'held', s.held))
        order by s.pool, s.number)
    into part
    from (
        select t.pool, t.number, null::integer as slots, pg_catalog.sum(t.free) as free,
            pg_catalog.sum(t.held) as held
        from (
            select f.pool, f.number, 1 as free, 0 as held from eve.free_slot as f where f.queue_id = q
            union all
            select h.pool, h.number, 0, 1 from eve.held_slot as h where h.queue_id = q
        ) as t
        group by t.pool, t.number
        having pg_catalog.count(*) > 1
        union all
        select p.pool, null, p.slots + p.surplus, f.free, h.held
        from eve.pool as p
        cross join lateral (select pg_catalog.count(*) as free from eve.free_slot as x
            where x.queue_id = q and x.pool = p.pool) as f
        cross join lateral (select pg_catalog.count(*) as held from eve.held_slot as x
            where x.queue_id = q and x.pool = p.pool) as h
        where p.queue_id = q and f.free + h.held <> p.slots + p.surplus
        union all
        -- A lease with a higher number than its pool knows would not be found when it lapses.
        select h.pool, h.number, null, null, null
        from eve.held_slot as h
        join eve.pool as p on p.queue_id = h.queue_id and p.pool = h.pool
        where h.queue_id = q and h.number > p.numbers
        union all
        select f.pool, f.number, null, 1, null
        from eve.free_slot as f
        where f.queue_id = q and f.seq < eve._slot_mark(q, f.pool, true)
    ) as s;
    part := case when eve._audit_keys(q) is null then part else coalesce(part, '[]') || eve._audit_keys(q) end;
    a.slots := case when part is null then 'accounted' else 'off' end;
    faults := faults || coalesce(part, '[]');
    -- Search structures are those of the states.
    select pg_catalog.jsonb_agg(
        pg_catalog.jsonb_build_object('fault', x.fault, 'item', x.item) order by x.fault, x.item)
    into part
    from (
        (select 'ready' as fault, coalesce(r.item, w.item) as item
        from (select y.* from eve.ready as y where y.queue_id = q) as r
        full join (select y.* from eve.work_item as y where y.queue_id = q and (y.queue_state).phase = 'ready') as w
            on w.item = r.item
        where (r.lane, r.rank, r.late, r.ready_since, r.class_id) is distinct from
            (w.lane, (w.queue_state).rank, (w.queue_state).late, (w.queue_state).ready_since, w.class_id)
        limit 100)
        union all
        (select 'lease', coalesce(h.item, w.item)
        from (select y.* from eve.held_slot as y where y.queue_id = q) as h
        full join (select y.* from eve.work_item as y where y.queue_id = q and (y.queue_state).phase = 'leased') as w
            on w.item = h.item
        where (h.token, h.pool, h.number, h.principal, h.worker, h.acquired_at, h.expires_at) is distinct from (
            (w.queue_state).token, (w.queue_state).pool, (w.queue_state).slot, (w.queue_state).principal,
            (w.queue_state).worker, (w.queue_state).acquired_at, (w.queue_state).expires_at)
        limit 100)
        union all
        (select 'hold', coalesce(h.item, w.item)
        from (select distinct y.item from eve.hold as y where y.queue_id = q) as h
        full join (select y.item from eve.work_item as y where y.queue_id = q and (y.queue_state).phase = 'held') as w
            on w.item = h.item
        where h.item is null or w.item is null
        limit 100)
        union all
        (select 'waiting key', coalesce(k.item, s.item)
        from (select y.* from eve.waiting_key as y where y.queue_id = q) as k
        full join eve._waiting_keys(q) as s on s.class_id = k.class_id and s.key = k.key
        where k.item is distinct from s.item
        limit 100)
        union all
        (select 'hold key', h.item
        from eve.hold as h
        join eve.work_item as w on w.queue_id = h.queue_id and w.item = h.item
        where h.queue_id = q and (h.trigger = 'key' or h.class_id is not null) and (
            h.class_id is distinct from w.class_id or h.rank is distinct from (w.queue_state).rank
            or h.place is null)
        limit 100)
        union all
        (select 'tally of class ' || k.name, null
        from eve.work_class as k
        cross join lateral eve._recount(q, k.class_id) as n
        cross join lateral eve._total(q, k.class_id, '-infinity', false) as t
        where k.queue_id = q and (n.held, n.ready, n.leased, n.uncertain, n.reported, n.completed, n.quarantined,
            n.queued_bytes, n.live_bytes, n.arrivals, n.completions) is distinct from (
            t.held, t.ready, t.leased, t.uncertain, t.reported, t.completed, t.quarantined,
            t.queued_bytes, t.live_bytes, t.arrivals, t.completions)
        limit 100)
        union all
        (select 'spend', coalesce(s.item, l.item)
        from (select y.item, y.version, y.root, y.amount from eve.spend as y where y.queue_id = q) as s
        full join eve._spends(q) as l on l.item = s.item and l.version = s.version
        where (s.root, s.amount) is distinct from (l.root, l.amount)
        limit 100)
        union all
        (select 'live effect', coalesce(s.item, e.item)
        from eve._live_effects(q) as s
        full join (select y.effect_identity, y.item from eve.live_effect as y where y.queue_id = q) as e
            on e.effect_identity = s.effect_identity
        -- A free row that nobody waits for goes with the next pruning.
        where s.item is distinct from e.item or e.effect_identity is null
        limit 100)
        union all
        (select 'mark', r.item
        from eve.ready as r
        where r.queue_id = q and not r.late and r.ready_since < (
            select max(m.since) from eve.mark as m
            where m.queue_id = r.queue_id and m.lane in (r.lane, -r.class_id) and m.rank = r.rank)
        limit 100)
        union all
        select 'trigger off: ' || t.tgname, null
        from pg_catalog.pg_trigger as t
        join pg_catalog.pg_class as k on k.oid = t.tgrelid
        join pg_catalog.pg_namespace as n on n.oid = k.relnamespace
        where n.nspname = 'eve' and not t.tgisinternal and t.tgenabled <> 'A'
        union all
        select 'trigger missing', null
        where (select pg_catalog.count(*) from pg_catalog.pg_trigger as t
            where t.tgrelid = 'eve.ledger'::pg_catalog.regclass and not t.tgisinternal) <> 3
    ) as x;
    a.indexes := case when part is null then 'equal' else 'different' end;
    faults := faults || coalesce(part, '[]');
    a.clean := faults = '[]';
    a.faults := faults;
    return a;
end
$$;

comment on function eve._audit_one(bigint, text) is
'Audit one queue: replay, chain, payload digests, slots, search structures, marks, triggers.';

create function public.eve_audit(queue text default null)
returns setof eve.audit_answer
language plpgsql
stable
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    q record;
    actor text := eve._actor();
begin
    if queue is not null then
        c := eve._look(queue, '{verifier,operator,human,auditor}');
        return next eve._audit_one(c.queue_id, c.queue);
        return;
    end if;
    for q in
        select k.queue_id, k.name from eve.queue as k
        where exists (
            select from eve.access as x
            where x.queue_id = k.queue_id and x.capability in ('verifier', 'operator', 'human', 'auditor')
                and eve._member(actor, x.role) and eve._member(actor, 'eve_' || x.capability))
        order by k.name
    loop
        return next eve._audit_one(q.queue_id, q.name);
    end loop;
end
$$;

comment on function public.eve_audit(text) is
'Audit a queue, or all that the caller may read: the replay of every item equals its state and that of the queue its access, classes, pools and decisions, the hash chain is intact, slots are accounted for, search structures agree; faults name what does not.';

create function public.eve_rebuild(queue text)
returns eve.audit_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    said record;
begin
    -- Every verb reads eve.queue first: who holds it alone, before anything else, holds the house and cannot deadlock.
    lock table eve.queue in access exclusive mode;
    c := eve._enter(queue, '{operator}');
    delete from eve.work_item as w where w.queue_id = c.queue_id;
    insert into eve.work_item (queue_id, item, class_id, lane, size, coalesces, effect_unique, limited,
        queue_state, hash)
    select c.queue_id, r.item, coalesce(i.class_id, 0), coalesce(i.lane, 0), coalesce(i.payload_size, 0),
        coalesce(i.coalesces, false), coalesce(i.effect_unique, false), coalesce(i.limited, false), r.state, r.hash
    from (
        select l.item,
            eve.replay(eve._event(l.kind, l.phase, l.at, l.principal, l.worker, l.epoch, l.revision, l.token,
                l.pool, l.slot, l.due_at, l.rank, l.attempts, l.reason) order by l.version) as state,
            (array_agg(l.hash order by l.version desc))[1] as hash
        from eve.ledger as l where l.queue_id = c.queue_id group by l.item
    ) as r
    left join eve.intent as i on i.queue_id = c.queue_id and i.item = r.item;
    delete from eve.ready as r where r.queue_id = c.queue_id;
    delete from eve.mark as m where m.queue_id = c.queue_id;
    insert into eve.ready (queue_id, lane, rank, late, ready_since, item, class_id)
    select w.queue_id, w.lane, (w.queue_state).rank, (w.queue_state).late, (w.queue_state).ready_since,
        w.item, w.class_id
    from eve.work_item as w where w.queue_id = c.queue_id and (w.queue_state).phase = 'ready';
    delete from eve.waiting_key as k where k.queue_id = c.queue_id;
    insert into eve.waiting_key (queue_id, class_id, key, item)
    select c.queue_id, k.class_id, k.key, k.item from eve._waiting_keys(c.queue_id) as k;
    delete from eve.held_slot as h where h.queue_id = c.queue_id;
    insert into eve.held_slot (queue_id, item, token, pool, number, principal, worker, acquired_at, expires_at)
    select w.queue_id, w.item, (w.queue_state).token, (w.queue_state).pool, (w.queue_state).slot,
        (w.queue_state).principal, (w.queue_state).worker, (w.queue_state).acquired_at, (w.queue_state).expires_at
    from eve.work_item as w where w.queue_id = c.queue_id and (w.queue_state).phase = 'leased';
    update eve.dependency as d set open = false
    from eve.work_item as p
    where d.queue_id = c.queue_id and d.open and p.queue_id = d.queue_id and p.item = d.on_item
        and ((p.queue_state).phase = 'verified' or d.needs = 'ended' and (p.queue_state).phase in
            ('rejected', 'expired', 'cancelled', 'coalesced', 'dead'));
    delete from eve.hold as h where h.queue_id = c.queue_id;
    insert into eve.hold (
        queue_id, item, reason, ref, owner, trigger, due_at, look_at, open_edges, class_id, rank, place)
    select w.queue_id, w.item, h.reason, coalesce(h.ref, ''), h.owner, h.trigger, h.due_at,
        case when h.trigger <> 'time' then eve._clock(c) end,
        case when h.reason = 'dependency_not_ready' then (
            select count(*) from eve.dependency as d
            where d.queue_id = w.queue_id and d.item = w.item and d.open) end,
        case when h.trigger = 'key' then w.class_id end,
        case when h.trigger = 'key' then (w.queue_state).rank end, h.place
    from eve.work_item as w
    cross join lateral (
        select l.data -> 'holds' as holds from eve.ledger as l
        where l.queue_id = w.queue_id and l.item = w.item and l.data ? 'holds'
        order by l.version desc limit 1
    ) as s
    cross join lateral jsonb_to_recordset(s.holds) as h (
        reason text, ref text, owner text, trigger text, due_at timestamptz, place timestamptz)
    where w.queue_id = c.queue_id and (w.queue_state).phase = 'held';
    delete from eve.spend as s where s.queue_id = c.queue_id;
    insert into eve.spend (queue_id, item, version, root, amount)
    select c.queue_id, s.item, s.version, s.root, s.amount from eve._spends(c.queue_id) as s;
    delete from eve.live_effect as e where e.queue_id = c.queue_id;
    insert into eve.live_effect (queue_id, effect_identity, item)
    select c.queue_id, s.effect_identity, s.item from eve._live_effects(c.queue_id) as s;
    -- And what the events of the queue itself made.
    delete from eve.access as x where x.queue_id = c.queue_id;
    delete from eve.decision as x where x.queue_id = c.queue_id;
    delete from eve.class_revision as x where x.queue_id = c.queue_id;
    delete from eve.work_class as x where x.queue_id = c.queue_id;
    delete from eve.free_slot as x where x.queue_id = c.queue_id;
    delete from eve.pool as x where x.queue_id = c.queue_id;
    delete from eve.keeper as x where x.queue_id = c.queue_id;
    delete from eve.queue as x where x.queue_id = c.queue_id;
    delete from eve.key_limit as x where x.queue_id = c.queue_id;
    for said in
        select l.version, l.kind, l.at, l.actor, l.principal, l.epoch, l.data
        from eve.ledger as l where l.queue_id = c.queue_id and l.item = 0
        order by l.version
    loop
        perform eve._project_queue(
            c.queue_id, said.version, said.kind, said.at, said.actor, said.principal, said.epoch, said.data);
    end loop;
    perform eve._repair_slots(c);
    perform eve._rebuild_keys(c.queue_id);
    -- No transaction that has written a tally is open: each holds eve.queue.
    delete from eve.tally as x where x.queue_id = c.queue_id;
    delete from eve.total as x where x.queue_id = c.queue_id;
    insert into eve.total (
        queue_id, class_id, tx, at, held, ready, leased, uncertain, reported, completed, quarantined,
        queued_bytes, live_bytes, arrivals, completions)
    select c.queue_id, k.class_id, pg_snapshot_xmin(pg_current_snapshot()), eve._clock(c),
        s.held, s.ready, s.leased, s.uncertain, s.reported, s.completed, s.quarantined, s.queued_bytes,
        s.live_bytes, s.arrivals, s.completions
    from eve.work_class as k
    cross join lateral eve._recount(k.queue_id, k.class_id) as s
    where k.queue_id = c.queue_id;
    return eve._audit_one(c.queue_id, c.queue);
end
$$;

comment on function public.eve_rebuild(text) is
'Drop the projections and the search structures of a queue and its items and fold them anew from the ledger; answers the audit of the result. All callers, of other queues too, wait meanwhile.';

commit;
