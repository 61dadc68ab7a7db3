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
    paused boolean;
    h record;
begin
    k := eve._candidate(c, target);
    select v.status into status from eve.item_status as v where v.queue_id = c.queue_id and v.item = target;
    door.halted := c.halted;
    select p.slots, p.paused into door.slots, paused from eve.pool as p
    where p.queue_id = c.queue_id and p.pool = c.default_pool;
    door.free := exists (
        select from eve.free_slot as f where f.queue_id = c.queue_id and f.pool = c.default_pool);
    door := eve._facts(c, k, door);
    door.blocked := case when k.class_paused then 'class is paused' when paused then 'pool is paused'
        when (k.state).phase = 'ready' then coalesce(eve._condemn(c, k, eve._clock(c)),
            eve._downstream(c.queue_id, k.policy, eve._clock(c))) end;
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
        return next row(target, status, (k.state).phase, coalesce((k.state).reason, (k.state).phase),
            (select p.meaning from eve.phase as p where p.phase = (k.state).phase),
            case (k.state).phase
                when 'completed' then format('A verifier calls eve_verify(%L, %s).', c.queue, target)
                when 'reported' then format(
                    'The missing effects are recorded with eve_observe_effect(%L, %s, …).', c.queue, target)
                else format(
                    'A verifier or human calls eve_reconcile(%L, %s, ''observed'' | ''absent'').',
                    c.queue, target) end,
            case (k.state).phase when 'completed' then 'verifier' else (k.policy).retry_owner end,
            null)::eve.explain_answer;
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
        return next row(target, status, (k.state).phase, refused.code, refused.message, refused.hint, refused.retry,
            eve._door_detail(door, codes))::eve.explain_answer;
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
