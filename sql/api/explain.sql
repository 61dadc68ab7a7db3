-- api/explain.sql · why an item cannot run, what would change that, and who can. Reads only.
begin;

create function public.eve_explain(queue text, item bigint default null, work_id text default null)
returns setof eve.explain_answer
language plpgsql
stable
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller := eve._look(eve_explain.queue, eve._everyone());
    target bigint := eve._find_item(c, eve_explain.item, eve_explain.work_id);
    k eve.candidate;
    door eve.door;
    codes text[];
    refused record;
    status text;
    pool record;
    downstream text;
    at timestamptz;
    h record;
begin
    k := eve._candidate(c, target);
    select v.status into status from eve.item_status as v where v.queue_id = c.queue_id and v.item = target;
    at := eve._clock(c);
    door.halted := c.halted;
    -- The pool that may run it: the default one, or the first that its class may and does not share with others.
    select p.pool, p.slots, p.paused into pool from eve.pool as p
    where p.queue_id = c.queue_id
        and ((k.policy).pools is null or p.pool = any ((k.policy).pools))
        and (p.classes is null or k.class = any (p.classes))
    order by p.pool = c.default_pool desc, p.paused, p.slots = 0, p.pool limit 1;
    door.slots := pool.slots;
    door.free := exists (
        select from eve.free_slot as f where f.queue_id = c.queue_id and f.pool = pool.pool);
    door := eve._facts(c, k, door);
    downstream := eve._downstream(c.queue_id, k.policy, at);
    door.blocked := case
        when k.class_paused then 'class is paused'
        when pool.pool is null then 'no pool may run its class'
        when pool.paused then 'pool is paused'
        when (k.state).phase <> 'ready' then null
        when downstream like '%is unhealthy' then downstream
        else coalesce(eve._hopeless(c.queue_id, target, at),
            nullif(nullif(eve._condemn(c, k, at), 'max attempts exceeded'), 'spend_not_approved'))
    end;
    door.saturated := case when (k.state).phase = 'ready' then nullif(downstream, door.blocked) end;
    codes := eve._gates(door);
    if (k.state).phase = 'leased' then
        return next row(target, status, 'leased', 'running',
            format('leased by %s (%s) until %s', (k.state).principal, (k.state).worker, (k.state).expires_at),
            'It finishes, returns, or its lease lapses.', (k.state).principal,
            jsonb_build_object('token', (k.state).token::text, 'expires_at', (k.state).expires_at))::eve.explain_answer;
        return;
    end if;
    if (k.state).phase in ('verified', 'rejected', 'expired', 'cancelled', 'coalesced', 'dead') then
        return next row(target, status, (k.state).phase, (k.state).phase,
            coalesce((k.state).reason, (select p.meaning from eve.phase as p where p.phase = (k.state).phase)),
            'Nothing: this is an end. Submit new work.', null, null)::eve.explain_answer;
        return;
    end if;
    if (k.state).phase in ('uncertain', 'reported', 'completed') then
        return next row(target, status, (k.state).phase,
            case (k.state).phase when 'uncertain' then 'reconciliation_required' else (k.state).phase end,
            (select p.meaning from eve.phase as p where p.phase = (k.state).phase),
            case (k.state).phase
                when 'completed' then format('A verifier calls eve_verify(%L, %s).', c.queue, target)
                when 'reported' then format(
                    'The missing effects are recorded with eve_observe_effect(%L, %s, …).', c.queue, target)
                else format(
                    'A verifier or human calls eve_reconcile(%L, %s, ''observed'' | ''absent'').',
                    c.queue, target) end,
            case (k.state).phase when 'completed' then 'verifier' else (k.policy).retry_owner end,
            jsonb_strip_nulls(jsonb_build_object(
                'reason', (k.state).reason,
                'authority', (k.policy).protection -> 'authority',
                'missing', (
                    select jsonb_agg(u.effect order by u.effect)
                    from eve.intent as i
                    cross join unnest(coalesce(i.expected_effects, array[i.effect_identity])) as u (effect)
                    where i.queue_id = c.queue_id and i.item = target and not exists (
                        select from eve.effect as e
                        where e.queue_id = c.queue_id and e.item = target and e.kind = 'observed'
                            and e.effect_identity = u.effect)))))::eve.explain_answer;
        return;
    end if;
    for h in
        -- Edges are told as they are now, never as they were stored.
        select x.reason, x.ref, x.owner, x.trigger, x.due_at from eve.hold as x
        where x.queue_id = c.queue_id and x.item = target and x.trigger <> 'dependency'
        union all
        select r.reason, '', r.owner, r.trigger, null
        from eve.reason as r
        where r.decision = 'HOLD' and (k.state).phase = 'held' and (
            r.reason = 'unknown_dependency' and door.unknown_edges is not null
            or r.reason = 'dependency_cycle' and door.cycle is not null
            or r.reason = 'dependency_not_ready' and door.open_edges is not null)
        order by 1, 2
    loop
        return next row(target, status, 'held', h.reason,
            (select r.meaning from eve.reason as r where r.decision = 'HOLD' and r.reason = h.reason),
            case h.trigger
                when 'time' then format('It is released at %s.', h.due_at)
                when 'decision' then format('A human calls eve_accept(%L, %s).', c.queue, h.ref)
                when 'dependency' then format(
                    'The items in the detail are verified, or a human accepts a waiver:'
                    ' eve_propose(%L, ''waiver'', item => %s, work_id => …).', c.queue, target)
                when 'policy' then format(
                    'The class gets a revision that answers it: eve_define_class(%L, %L, …).', c.queue, k.class)
                when 'observation' then case when h.ref = k.class
                    then format('Fresh evidence of the class: eve_measure(%L, %L); acquisitions measure, too.',
                        c.queue, k.class)
                    else format('Somebody tells how it is: eve_set_health(%L, %L, …).', c.queue, h.ref) end
                when 'health' then format('It recovers, and somebody says so: eve_set_health(%L, %L, ''healthy'').',
                    c.queue, h.ref)
                when 'validator' then format('Extension eve_plpython is installed, then eve_recheck(%L, %s).',
                    c.queue, target)
                when 'effect' then format('The live item with effect identity %L ends or is verified.', h.ref)
                when 'reconciliation' then format('A verifier or human calls eve_reconcile(%L, %s, …).',
                    c.queue, target)
                when 'key' then format('Limit key "%s" has %s leases; it is released when one ends.', h.ref,
                    eve._key_live(c.queue_id, k.class_id, h.ref))
                else format('The trigger %s fires.', h.trigger) end,
            h.owner,
            jsonb_strip_nulls(jsonb_build_object('trigger', h.trigger, 'ref', nullif(h.ref, ''), 'due_at', h.due_at,
                'unknown', to_jsonb(door.unknown_edges), 'open', to_jsonb(door.open_edges),
                'cycle', to_jsonb(door.cycle))))::eve.explain_answer;
    end loop;
    for refused in
        select r.code, r.message, r.hint, r.retry
        from unnest(codes) with ordinality as u (code, place)
        join eve.refusal as r on r.code = u.code
        where (k.state).phase <> 'held' or u.code not in
            ('not_acquirable', 'dependency_not_ready', 'unknown_dependency', 'dependency_cycle')
        order by u.place
    loop
        return next row(target, status, (k.state).phase, refused.code,
            case refused.code
                when 'not_acquirable' then coalesce(door.blocked, refused.message)
                when 'concurrency_exhausted' then coalesce(door.saturated, refused.message)
                else refused.message end,
            case
                when refused.code in ('not_acquirable', 'concurrency_exhausted')
                    and downstream in (door.blocked, door.saturated)
                    then format('It recovers, a lease that uses it ends, or somebody tells how it is:'
                        ' eve_set_health(%L, …, ''healthy'').', c.queue)
                when refused.code = 'not_acquirable' and k.class_paused
                    then format('An operator calls eve_unpause(%L, class => %L).', c.queue, k.class)
                when refused.code = 'not_acquirable' and pool.paused
                    then format('An operator calls eve_unpause(%L, pool => %L).', c.queue, pool.pool)
                when refused.code = 'not_acquirable' and pool.pool is null
                    then format('An operator defines a pool for it: eve_define_pool(%L, …, classes => array[%L]).',
                        c.queue, k.class)
                when refused.code = 'not_acquirable' and door.blocked is not null
                    then 'The next acquisition or sweep records that it is not to be done.'
                when refused.code = 'spend_not_approved' and door.slots = 0
                    then format('A human calls eve_approve_slots(%L, %L, …).', c.queue, pool.pool)
                when refused.code = 'fleet_halted' then format('A human calls eve_resume(%L, …).', c.queue)
                when refused.code = 'quarantined' then format(
                    'A human calls eve_unpark(%L, %s, …) or eve_reject(%L, %s, …); eve_history has its record.',
                    c.queue, target, c.queue, target)
                else refused.hint end,
            refused.retry,
            jsonb_strip_nulls(eve._door_detail(door, codes)
                || jsonb_build_object('pool', case when refused.code in ('concurrency_exhausted', 'spend_not_approved')
                    then pool.pool end)))::eve.explain_answer;
    end loop;
    if codes is null then
        return next row(target, status, 'ready', 'ready', 'ready: every gate passes',
            format('The next eve_acquire(%L, …) in queue order takes it.', c.queue), 'worker',
            null)::eve.explain_answer;
    end if;
end
$$;

comment on function public.eve_explain(text, bigint, text) is
'Why an item cannot run now, one row a reason, with what would change that and who can; one row "ready" when nothing stands in its way. Refuses unknown and foreign items alike (P0002).';

commit;
