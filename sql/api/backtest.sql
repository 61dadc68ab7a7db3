-- api/backtest.sql · what a candidate policy would have decided of the submissions on record. Reads only, takes no lock.
begin;

create type eve.backtest_answer as (
    part text,
    at timestamptz,
    item bigint,
    submission bigint,
    work_id text,
    was_decision text,
    was_reason text,
    would_decision text,
    would_reason text,
    because jsonb
);

comment on type eve.backtest_answer is
'Answer of eve_backtest: part "change" for each submission that the candidate would decide otherwise, "unjudgeable" for each that the record does not let it decide, with the reason in because; last "summary" with the counts.';

create type eve.turn_of_past as (
    at timestamptz,
    kind text,
    place integer,
    item bigint,
    submission bigint,
    size bigint,
    key integer,
    effect integer,
    ours boolean
);

comment on type eve.turn_of_past is
'One step of a replayed window: an item that was there before, a submission to judge, another class''s item, or an item that ended.';

create function eve._turns(queue_id bigint, of_class integer, class text, since timestamptz, shared boolean)
returns setof eve.turn_of_past
language plpgsql
stable
as $$
begin
    return query
    with stored as materialized (
        select i.item, i.class_id = of_class as ours, i.submitted_at, i.payload_size, i.coalescing_key,
            i.effect_identity, g.gone
        from eve.intent as i
        join eve.work_item as w on w.queue_id = i.queue_id and w.item = i.item
        left join lateral (
            select min(l.at) as gone from eve.ledger as l
            where l.queue_id = i.queue_id and l.item = i.item and not eve._live(l.phase)
        ) as g on not eve._live((w.queue_state).phase)
        where i.queue_id = _turns.queue_id and (shared or i.class_id = of_class)
            and (i.submitted_at >= since or g.gone is null or g.gone > since)
    ), arrived as materialized (
        select x.*, pg_catalog.row_number() over (
                order by x.submitted_at, x.submission nulls first, x.item)::integer as place,
            case when x.coalescing_key is not null and x.ours then
                pg_catalog.dense_rank() over (order by x.ours, x.coalescing_key)::integer end as key,
            case when x.effect_identity is not null and x.ours then
                pg_catalog.dense_rank() over (order by x.ours, x.effect_identity)::integer end as effect
        from (
            select s.item, null::bigint as submission, s.ours, s.submitted_at, s.payload_size, s.coalescing_key,
                s.effect_identity, s.gone
            from stored as s
            union all
            select null, r.submission, true, r.at, r.payload_size, r.evidence #>> '{steps,9,key}',
                r.evidence #>> '{steps,0,effect}', null
            from eve.submission as r
            where r.queue_id = _turns.queue_id and r.class = _turns.class and r.at >= since
        ) as x
    )
    select t.at, t.kind, t.place, t.item, t.submission, t.size::bigint, t.key, t.effect, t.ours
    from (
        select a.submitted_at as at,
            case when a.ours and a.submitted_at >= since then 'judge' else 'there' end as kind,
            a.place, a.item, a.submission, a.payload_size as size, a.key,
            a.effect, a.ours
        from arrived as a
        union all
        select a.gone, 'gone', a.place, a.item, null, a.payload_size, a.key, a.effect, a.ours
        from arrived as a where a.gone is not null
    ) as t
    order by t.at, t.kind = 'gone', t.place;
end
$$;

comment on function eve._turns(bigint, integer, text, timestamptz, boolean) is
'What happened in a window, in order: the items of a class (shared: of every class) that were there, came and went, and the submissions that were refused.';

create function eve._because(evidence jsonb, reason text)
returns jsonb
language sql
immutable
return (
    select pg_catalog.jsonb_strip_nulls(s.step)
    from pg_catalog.jsonb_array_elements(evidence -> 'steps') as s (step)
    where s.step ->> 'step' = case
        when reason in ('item_budget_exhausted', 'byte_budget_exhausted', 'age_budget_exceeded') then '9'
        when pg_catalog.starts_with(reason, 'dependency_') then '9'
        when reason in ('payload_invalid', 'payload_too_large', 'class_not_authorised', 'validator_unavailable')
            then '12'
        when reason in ('deadline_passed', 'not_before') then '3'
        when reason = 'deadline_infeasible' then '8'
        when pg_catalog.starts_with(reason, 'capacity_evidence_') then '7'
        when reason in ('value_window_ended', 'intent_cancelled', 'awaiting_decision') then '2'
        when reason = 'equivalent_waiting' then '10'
        when reason in ('replay_class_unknown', 'protection_shorter_than_life') then '4'
        else '1'
    end
);

comment on function eve._because(jsonb, text) is 'The step of an admission that a reason comes from, with what it read.';

create function eve._reasons(holds jsonb)
returns jsonb
language sql
immutable
return (
    select pg_catalog.jsonb_agg(h.hold -> 'reason' order by h.hold -> 'reason')
    from pg_catalog.jsonb_array_elements(holds) as h (hold)
);

comment on function eve._reasons(jsonb) is 'The reasons of a hold set in order; null when it is empty.';

create function public.eve_backtest(
    queue text,
    class text,
    policy jsonb,
    since timestamptz,
    preset text default 'job',
    at_most integer default 10000
)
returns setof eve.backtest_answer
language plpgsql
stable
security definer
set search_path to pg_catalog, pg_temp
set intervalstyle to postgres
as $$
declare
    c eve.caller;
    candidate eve.policy;
    answer eve.backtest_answer;
    turn eve.turn_of_past;
    r eve.recorded;
    d eve.decided;
    a eve.asked;
    as_recorded eve.asked;
    p eve.past;
    of_class integer;
    judged integer := 0;
    changed integer := 0;
    unjudged integer := 0;
    looked integer := 0;
    recorded bigint;
    shared boolean;
    until timestamptz;
    kinds jsonb := '{}';
    faults jsonb := '{}';
    fault text;
    -- Stored in truth, and under the candidate: of the class and of the queue.
    real_items bigint := 0::bigint;
    real_bytes bigint := 0::bigint;
    real_shared_items bigint := 0::bigint;
    real_shared_bytes bigint := 0::bigint;
    more_items bigint := 0::bigint;
    more_bytes bigint := 0::bigint;
    kept boolean[] := '{}';
    life interval;
    ghost_until timestamptz[] := '{}';
    ghost_size bigint[] := '{}';
    ghosts integer := 0;
    ghost integer := 1;
    waiting_item bigint[] := '{}';
    waiting_until timestamptz[] := '{}';
    waiting_place integer[] := '{}';
    waiting_size bigint[] := '{}';
    standing integer;
    owner_item bigint[] := '{}';
    owner_until timestamptz[] := '{}';
    heir_item bigint[] := '{}';
    elsewhere boolean;
    owned boolean;
    ready_item bigint[];
    ready_from timestamptz[];
    ready_since timestamptz[];
    ready_until timestamptz[];
    ready_at integer := 1;
    n integer;
    was_holds jsonb;
    would_holds jsonb;
    here boolean;
    was_stored boolean;
begin
    c := eve._look(queue, '{operator}');
    if policy is null or preset is null or since is null then
        perform eve._raise('22004', 'policy, preset or since is null', null,
            'Pass the candidate, its preset, and the instant from which to judge.');
    end if;
    perform eve._check_instant('since', since);
    if (at_most between 1 and 100000) is not true then
        perform eve._raise('22023', 'at_most is not between 1 and 100000', '{"argument": "at_most"}',
            'Pass how many submissions to judge at most.');
    end if;
    of_class := eve._class_id(c, class);
    candidate := eve._policy_of(preset, policy);
    shared := candidate.shared_item_limit is not null or candidate.shared_byte_limit is not null;
    recorded := (
        select pg_catalog.count(*) from eve.intent as i
        where i.queue_id = c.queue_id and i.class_id = of_class and i.submitted_at >= since)
        + (select pg_catalog.count(*) from eve.submission as s
        where s.queue_id = c.queue_id and s.class = eve_backtest.class and s.at >= since);
    -- Nobody knows when an item that only the candidate admits would have ended: it lives as the others did.
    life := (
        select avg(l.at - i.submitted_at)
        from eve.intent as i
        join eve.work_item as w on w.queue_id = i.queue_id and w.item = i.item
        cross join lateral (
            select min(e.at) as at from eve.ledger as e
            where e.queue_id = i.queue_id and e.item = i.item and not eve._live(e.phase)
        ) as l
        where i.queue_id = c.queue_id and i.class_id = of_class and i.submitted_at >= since
            and not eve._live((w.queue_state).phase));
    if candidate.age_limit is not null then
        select array_agg(f.item order by f.ready_since, f.at), array_agg(f.at order by f.ready_since, f.at),
            array_agg(f.ready_since order by f.ready_since, f.at),
            array_agg(f.until order by f.ready_since, f.at)
        into ready_item, ready_from, ready_since, ready_until
        from (
            select s.item, (s.state).phase as phase, (s.state).ready_since as ready_since, s.at,
                lead(s.at) over (partition by s.item order by s.version) as until
            from (
                select l.item, l.version, l.at,
                    eve.replay(eve._event(l.kind, l.phase, l.at, l.principal, l.worker, l.epoch, l.revision,
                        l.token, l.pool, l.slot, l.due_at, l.rank, l.attempts, l.reason))
                        over (partition by l.item order by l.version) as state
                from eve.intent as i
                join eve.work_item as w on w.queue_id = i.queue_id and w.item = i.item
                join eve.ledger as l on l.queue_id = i.queue_id and l.item = i.item
                where i.queue_id = c.queue_id and i.class_id = of_class
                    and ((w.queue_state).at >= since or eve._live((w.queue_state).phase))
            ) as s
        ) as f
        where f.phase = 'ready' and (f.until is null or f.until > since);
    end if;
    elsewhere := candidate.effect_unique and exists (
        select from eve.intent as i
        where i.queue_id = c.queue_id and i.class_id <> of_class and i.effect_unique);
    for turn in
        select t.* from eve._turns(c.queue_id, of_class, class, since, shared) as t
    loop
        while ghost <= ghosts and ghost_until[ghost] <= turn.at loop
            more_items := more_items - 1;
            more_bytes := more_bytes - ghost_size[ghost];
            ghost := ghost + 1;
        end loop;
        if turn.kind = 'gone' then
            real_shared_items := real_shared_items - 1;
            real_shared_bytes := real_shared_bytes - turn.size;
            if turn.ours then
                real_items := real_items - 1;
                real_bytes := real_bytes - turn.size;
                if not kept[turn.place] then
                    more_items := more_items + 1;
                    more_bytes := more_bytes + turn.size;
                end if;
            end if;
            continue;
        end if;
        here := true;
        owned := candidate.effect_unique and turn.effect is not null and coalesce(
            owner_until[turn.effect] > turn.at or owner_until[turn.effect] is null
            and (eve._live(eve._phase_then(c.queue_id, owner_item[turn.effect], turn.at))
                or eve._live(eve._phase_then(c.queue_id, heir_item[turn.effect], turn.at))), false);
        was_stored := turn.item is not null;
        if turn.kind = 'judge' then
            exit when looked >= at_most;
            looked := looked + 1;
            until := turn.at;
            r := eve._recorded(c.queue_id, class, turn.item, turn.submission);
            a := eve._asked_again(r, candidate);
            while ready_until[ready_at] <= turn.at loop
                ready_at := ready_at + 1;
            end loop;
            n := ready_at;
            -- What became ready later with an earlier place, what had ended, and the submission itself do not count.
            while n <= cardinality(ready_item) and (ready_from[n] > turn.at or ready_until[n] <= turn.at
                or ready_item[n] = turn.item) loop
                n := n + 1;
            end loop;
            p := eve._past(c.queue_id, r, candidate, policy -> 'schema', ready_since[n],
                owned, elsewhere);
            c.principal := r.principal;
            d := eve._decide_alone(c, a, p);
            fault := null;
            standing := null;
            if d.decision is null and candidate.coalesce <> 'none' and turn.key is not null
                and (waiting_until[turn.key] > turn.at or waiting_until[turn.key] is null
                    and (waiting_item[turn.key] = r.merged_with
                        or eve._phase_then(c.queue_id, waiting_item[turn.key], turn.at) in ('held', 'ready'))) then
                as_recorded := r.envelope;
                as_recorded.policy := candidate;
                if (as_recorded.alone is null or as_recorded.completion_test is null)
                    and waiting_item[turn.key] is distinct from r.merged_with then
                    fault := 'whether it is equivalent to what waited is not on record';
                elsif waiting_item[turn.key] is null or waiting_item[turn.key] = r.merged_with
                    or eve._equivalent(c, as_recorded, waiting_item[turn.key]) then
                    standing := waiting_place[turn.key];
                    if candidate.coalesce = 'absorb' then
                        d.survivor := waiting_item[turn.key];
                        d.decision := 'COALESCE';
                        d.reason := 'equivalent_waiting';
                    else
                        d.replaces := waiting_item[turn.key];
                    end if;
                end if;
            end if;
            if d.decision is null then
                if eve._budgeted(candidate) then
                    d.spent := row(
                        coalesce((r.counts ->> 'items')::bigint, real_items) + more_items,
                        coalesce((r.counts ->> 'bytes')::bigint, real_bytes) + more_bytes,
                        case when shared then
                            coalesce((r.counts ->> 'shared_items')::bigint, real_shared_items) + more_items end,
                        case when shared then
                            coalesce((r.counts ->> 'shared_bytes')::bigint, real_shared_bytes) + more_bytes end
                    )::eve.spent_budget;
                    if d.replaces is not null then
                        d.spent.items := (d.spent).items - 1;
                        d.spent.bytes := (d.spent).bytes - waiting_size[turn.key];
                        d.spent.shared_items := (d.spent).shared_items - 1;
                        d.spent.shared_bytes := (d.spent).shared_bytes - waiting_size[turn.key];
                    end if;
                end if;
                d := eve._decide_among(c, a, d, p);
            end if;
            fault := case
                when fault is not null then fault
                when d.facts -> 'payload' ->> 'verdict' = 'purged' then 'the payload was not kept'
                when (a.policy).replay_class <> 'destination_protected' and a.replay_class = 'destination_protected'
                    and (a.policy).protection is null then 'the candidate states no protection by the destination'
                when ((r.asked).policy).evidence = 'none' and d.decision = 'ADMIT' and exists (
                    select from jsonb_array_elements(d.holds) as h
                    where h ->> 'reason' ^@ 'capacity_evidence_' and h ->> 'ref' = eve_backtest.class)
                    then 'nobody measured the capacity then'
            end;
            -- Names and edges are none of the policy's: they decide as they did.
            if d.decision = 'ADMIT' and r.reason = 'work_id_taken' then
                d.decision := 'REJECT';
                d.reason := 'work_id_taken';
            end if;
            if d.decision = 'ADMIT' then
                d.holds := d.holds || coalesce((
                    select jsonb_agg(h) from jsonb_array_elements(r.holds) as h
                    where h ->> 'reason' in (
                        'unknown_dependency', 'dependency_cycle', 'dependency_not_ready')
                        or h ->> 'reason' = 'key_saturated' and (a.policy).limit_per_key is not null), '[]');
                if d.holds <> '[]' then
                    d.decision := 'HOLD';
                    d.reason := d.holds -> 0 ->> 'reason';
                end if;
            end if;
            was_holds := eve._reasons(r.holds);
            would_holds := case when d.decision = 'HOLD' then eve._reasons(d.holds) end;
            here := d.decision in ('ADMIT', 'HOLD');
            answer := row('change', turn.at, turn.item, turn.submission, (r.asked).work_id, r.decision, r.reason,
                d.decision, d.reason, null)::eve.backtest_answer;
            if fault is not null then
                here := was_stored;
                unjudged := unjudged + 1;
                faults := faults || jsonb_build_object(fault, coalesce((faults ->> fault)::integer, 0) + 1);
                answer.part := 'unjudgeable';
                answer.would_decision := null;
                answer.would_reason := null;
                answer.because := jsonb_build_object('reason', fault);
                return next answer;
            else
                judged := judged + 1;
                if (r.decision, r.reason, was_holds) is distinct from (d.decision, d.reason, would_holds) then
                    changed := changed + 1;
                    fault := concat_ws(' ', r.decision, r.reason) || ' → ' || concat_ws(' ', d.decision, d.reason);
                    kinds := kinds || jsonb_build_object(fault, coalesce((kinds ->> fault)::integer, 0) + 1);
                    answer.because := coalesce(eve._because(eve._evidence(a, d, d.holds),
                        case when d.decision = 'ADMIT' then r.reason else d.reason end), '{}')
                        || jsonb_strip_nulls(jsonb_build_object('revision', r.revision, 'holds', would_holds));
                    return next answer;
                end if;
            end if;
        end if;
        kept[turn.place] := here;
        if was_stored then
            real_shared_items := real_shared_items + 1;
            real_shared_bytes := real_shared_bytes + turn.size;
            if turn.ours then
                real_items := real_items + 1;
                real_bytes := real_bytes + turn.size;
                if not here then
                    more_items := more_items - 1;
                    more_bytes := more_bytes - turn.size;
                end if;
            end if;
        elsif here then
            more_items := more_items + 1;
            more_bytes := more_bytes + turn.size;
            ghosts := ghosts + 1;
            ghost_until[ghosts] := coalesce(turn.at + life, 'infinity');
            ghost_size[ghosts] := turn.size;
        end if;
        if turn.kind = 'judge' and here and d.replaces is not null and kept[standing] then
            -- What it replaces is stored no more, whatever it did in truth.
            kept[standing] := false;
            more_items := more_items - 1;
            more_bytes := more_bytes - waiting_size[turn.key];
        end if;
        if here and turn.key is not null then
            waiting_place[turn.key] := turn.place;
            waiting_size[turn.key] := turn.size;
            waiting_item[turn.key] := turn.item;
            waiting_until[turn.key] := case when not was_stored then coalesce(turn.at + life, 'infinity') end;
        end if;
        if here and turn.effect is not null then
            -- What waited for the effect has it next.
            heir_item[turn.effect] := turn.item;
        end if;
        if here and turn.effect is not null and not owned then
            owner_item[turn.effect] := turn.item;
            owner_until[turn.effect] := case when not was_stored then coalesce(turn.at + life, 'infinity') end;
        end if;
    end loop;
    answer := null;
    answer.part := 'summary';
    answer.at := until;
    answer.because := jsonb_build_object(
        'since', since, 'recorded', recorded, 'judged', judged, 'changed', changed, 'unjudgeable', unjudged,
        'left_out', recorded - looked, 'changes', kinds, 'unjudgeable_because', faults,
        'unanswered', eve._unanswered_questions(preset, policy));
    return next answer;
end
$$;

comment on function public.eve_backtest(text, text, jsonb, timestamptz, text, integer) is
'Judge the submissions of a class on record since an instant, in their order, by a candidate policy, and answer which would be decided otherwise and why; the last row is the summary: judged, changed, unjudgeable, and left out beyond at_most. It writes nothing and locks nothing. Refuses what eve_define_class would refuse of the candidate (22023) and an unknown class (P0002). Counts, capacity evidence, health and what waited are those of then, less what the candidate would not have stored; what only it would have stored is taken to live as long as the others did on average. Not modelled: what workers would have done otherwise, observations that the candidate would have caused, the edges and children of refused submissions, whether a merge with what only the candidate stores would fit (the key decides), a margin or replay class of a submission that its class outweighed, health that was told with an earlier instant.';

commit;
