-- admit/decide.sql · the decision on one submission: each check in order, the first refusal counts, every hold counts.
begin;

create type eve.decided as (
    decision text,
    reason text,
    holds jsonb,
    survivor bigint,
    replaces bigint,
    claimed bigint,
    capacity eve.capacity,
    spent eve.spent_budget,
    facts jsonb
);

comment on type eve.decided is
'An admission decision with its typed reason, the hold set, the survivor of a merge, and the evidence that the checks read.';

create function eve._decide_alone(c eve.caller, a eve.asked, past eve.past)
returns eve.decided
language plpgsql
stable
as $$
declare
    d eve.decided;
    policy eve.policy := a.policy;
    now boolean := past.at is null;
    starts timestamptz := greatest(a.at, a.not_before);
begin
    d.holds := '[]';
    d.facts := '{}';
    d.reason := case
        when case when now then a.cancellation_identity is not null
            and eve._tombstone(c.queue_id, a.cancellation_identity, c.principal)
            else past.cancelled end then 'intent_cancelled'
        when case when not now then past.awaited = 'declined'
            else a.awaited is not null and exists (
                select from eve.decision as q
                where q.queue_id = c.queue_id and q.decision = a.awaited and q.phase = 'declined') end
            then 'decision_declined'
        when a.lineage_fault is not null then a.lineage_fault
        when c.principal <> all (policy.submitters) then 'class_not_authorised'
        when a.size > policy.payload_limit then 'payload_too_large'
    end;
    if d.reason is null and policy.schema_digest is not null then
        d.facts := d.facts || pg_catalog.jsonb_build_object('payload', case
            when now then eve._payload_verdict(
                c.queue_id, a.class_id, a.revision, policy.schema_digest, a.payload)
            else coalesce(past.payload, eve._payload_under(past.schema, policy.schema_digest, a.payload)) end);
        if d.facts -> 'payload' ->> 'verdict' = 'invalid' then
            d.reason := 'payload_invalid';
        end if;
    end if;
    if d.reason is null and policy.effect_unique and (case when now
        then eve._effect_seen(c.queue_id, a.effect_identity) else past.effect_seen end) then
        d.reason := 'effect_already_observed';
    end if;
    if d.reason is not null then
        d.decision := 'REJECT';
        return d;
    end if;
    if policy.evidence <> 'none' then
        d.capacity := case when now then eve._capacity(c.queue_id, a.class_id, a.at) else past.capacity end;
    end if;
    d.reason := case
        -- Of two truths the measured one is told, while the deadline itself lies ahead.
        when starts < a.deadline and eve._infeasible(starts, d.capacity, a.margin, a.deadline)
            then 'deadline_infeasible'
        when starts + a.margin >= a.deadline then 'deadline_passed'
        when starts >= a.value_until then 'value_window_ended'
    end;
    if d.reason is not null then
        d.decision := 'EXPIRE';
    end if;
    return d;
end
$$;

comment on function eve._decide_alone(eve.caller, eve.asked, eve.past) is
'What a submission is refused for whatever else waits: REJECT or EXPIRE, or no decision yet.';

create function eve._budgeted(policy eve.policy)
returns boolean
language sql
immutable
return (policy).item_limit is not null or (policy).byte_limit is not null or (policy).shared_item_limit is not null
    or (policy).shared_byte_limit is not null or (policy).evidence = 'limit';

comment on function eve._budgeted(eve.policy) is 'Whether a policy asks for the counts of what is stored.';

create function eve._decide_among(c eve.caller, a eve.asked, decided eve.decided, past eve.past)
returns eve.decided
language plpgsql
stable
as $$
declare
    d eve.decided := decided;
    policy eve.policy := a.policy;
    now boolean := past.at is null;
    oldest interval;
    hold jsonb;
begin
    d.reason := case
        when (d.spent).items >= policy.item_limit
            or (d.spent).shared_items >= policy.shared_item_limit then 'item_budget_exhausted'
        when (d.spent).bytes + a.size > policy.byte_limit
            or (d.spent).shared_bytes + a.size > policy.shared_byte_limit then 'byte_budget_exhausted'
    end;
    if d.reason is not null then
        d.decision := 'REJECT';
        return d;
    end if;
    if policy.age_limit is not null then
        oldest := a.at - case when now then eve._oldest_eligible(c.queue_id, a.class_id)
            else past.oldest_eligible end;
    end if;
    if oldest > policy.age_limit then
        d.facts := d.facts || pg_catalog.jsonb_build_object('oldest_eligible_age', eve._span(oldest));
        if policy.age_action = 'reject' then
            d.decision := 'REJECT';
            d.reason := 'age_budget_exceeded';
            return d;
        end if;
        d.holds := d.holds || eve._hold_json('age_budget_exceeded', a.class, null, null);
    end if;
    if policy.evidence <> 'none' then
        hold := eve._judge_capacity(a.class, policy, d.capacity, (d.spent).items, a.deadline);
        if hold is not null then
            d.holds := d.holds || hold;
        end if;
    end if;
    if policy.dependencies is not null then
        d.holds := d.holds || eve._health_holds(c, policy, a.at, past.health);
    end if;
    if d.facts -> 'payload' ->> 'verdict' = 'unavailable' then
        d.holds := d.holds || eve._hold_json('validator_unavailable', a.class, null, null);
    end if;
    if a.replay_class = 'unknown' then
        d.holds := d.holds || eve._hold_json('replay_class_unknown', null, null, null);
    end if;
    if a.not_before > a.at then
        d.holds := d.holds || eve._hold_json('not_before', null, null, a.not_before);
    end if;
    if (case when not now then past.awaited = 'open' else a.awaited is not null and exists (
        select from eve.decision as q
        where q.queue_id = c.queue_id and q.decision = a.awaited and q.phase = 'open') end) then
        d.holds := d.holds || eve._hold_json('awaiting_decision', a.awaited::text, null, null);
    end if;
    -- Now it is claimed, exactly, once everything else is decided.
    if policy.effect_unique and not now and past.effect_live then
        d.holds := d.holds || eve._hold_json('effect_already_live', a.effect_identity, null, null);
    end if;
    if policy.replay_class = 'destination_protected' and (
        a.deadline is null or a.at + (policy.protection ->> 'retention')::interval < a.deadline) then
        d.reason := 'protection_shorter_than_life';
    end if;
    d.decision := 'ADMIT';
    return d;
end
$$;

comment on function eve._decide_among(eve.caller, eve.asked, eve.decided, eve.past) is
'What becomes of a submission among the others: REJECT by a budget or an age, or ADMIT with the holds known before its edges are stored. What is spent was counted by the caller.';

create function eve._decide(c eve.caller, a eve.asked)
returns eve.decided
language plpgsql
as $$
declare
    d eve.decided := eve._decide_alone(c, a, null);
    gone integer;
begin
    if d.decision is not null then
        return d;
    end if;
    -- Before any budget: a merged request takes none.
    if (a.policy).coalesce <> 'none' and a.coalescing_key is not null then
        d := eve._merge(c, a, d);
        if d.decision is not null then
            return d;
        end if;
    end if;
    if eve._budgeted(a.policy) then
        d.spent := eve._count_budget(c, a.class_id, a.policy, a.at);
        if d.replaces is not null then
            -- What it replaces makes room for it.
            gone := (select w.size from eve.work_item as w where w.queue_id = c.queue_id and w.item = d.replaces);
            d.spent.items := (d.spent).items - 1;
            d.spent.bytes := (d.spent).bytes - gone;
            d.spent.shared_items := (d.spent).shared_items - 1;
            d.spent.shared_bytes := (d.spent).shared_bytes - gone;
        end if;
    end if;
    return eve._decide_among(c, a, d, null);
end
$$;

comment on function eve._decide(eve.caller, eve.asked) is
'Decide a well-typed submission: REJECT, EXPIRE, COALESCE, or ADMIT with the holds known before its edges are stored.';

create function eve._evidence(a eve.asked, d eve.decided, holds jsonb)
returns jsonb
language plpgsql
stable
as $$
declare
    policy eve.policy := a.policy;
    cap eve.capacity := d.capacity;
    spent eve.spent_budget := d.spent;
    consulted boolean := policy.evidence <> 'none';
    -- What was not reached after a refusal says so; nothing unread reads as passed.
    ended boolean := d.decision in ('REJECT', 'EXPIRE', 'COALESCE');
    -- Of most submissions nothing was consulted: what is the same for all of them is not built anew.
    plain boolean := not consulted and not ended and a.coalescing_key is null and policy.coalesce = 'none'
        and policy.budget_mode = 'strict' and spent is null and policy.age_limit is null
        and policy.dependencies is null and policy.item_limit is null and policy.byte_limit is null;
    steps jsonb;
    last jsonb;
begin
    -- Statements of their own: of a CASE both sides are prepared, in each transaction.
    steps := pg_catalog.jsonb_build_array(
        pg_catalog.jsonb_build_object('step', 1, 'name', 'intent and identity', 'operation', a.operation_identity,
            'effect', a.effect_identity, 'work_id', a.work_id, 'digest', pg_catalog.encode(a.digest, 'hex'),
            'requested_at', eve._utc(a.requested_at), 'derived', a.derived,
            -- What a merge would have to compare.
            'alone', case when a.coalescing_key is not null then a.alone end,
            'expected_effects', case when a.coalescing_key is not null then a.expected_effects end,
            'completion_test', case when a.coalescing_key is not null then a.completion_test end,
            'priority_class', case when a.coalescing_key is not null then a.priority_class end),
        pg_catalog.jsonb_build_object('step', 2, 'name', 'intent active and valuable',
            'cancelled', d.reason = 'intent_cancelled', 'value_until', eve._utc(a.value_until),
            'awaits', a.awaited),
        pg_catalog.jsonb_build_object('step', 3, 'name', 'deadline and margin',
            'deadline', eve._utc(a.deadline),
            'margin', eve._span(a.margin), 'not_before', eve._utc(a.not_before)),
        pg_catalog.jsonb_build_object('step', 4, 'name', 'repetition', 'replay_class', a.replay_class),
        pg_catalog.jsonb_build_object('step', 5, 'name', 'owners', 'admission', 'eve_submit',
            'retry', policy.retry_owner, 'execution', 'holder of the live lease'));
    if plain then
        steps := steps
            || '[{"step": 6, "name": "observe capacity", "evidence": "none", "observed_at": null, "age": null,'
            ' "drain": null},'
            ' {"step": 7, "name": "freshness", "verdict": "not consulted", "limit": null},'
            ' {"step": 8, "name": "start delay against deadline and value", "start_delay": null,'
            ' "verdict": "not consulted"},'
            ' {"step": 9, "name": "budgets", "mode": "strict", "items": null, "item_limit": null, "bytes": null,'
            ' "byte_limit": null, "shared_items": null, "shared_item_limit": null, "shared_bytes": null,'
            ' "shared_byte_limit": null, "oldest_eligible_age": null, "age_limit": null, "dependencies": null},'
            ' {"step": 10, "name": "coalesce", "rule": "none", "key": null, "survivor": null,'
            ' "replaces": null}]';
    else
        steps := steps || pg_catalog.jsonb_build_array(
            pg_catalog.jsonb_build_object('step', 6, 'name', 'observe capacity', 'evidence', policy.evidence,
                'observed_at', eve._utc(cap.observed_at), 'age', eve._span(cap.age), 'drain', cap.drain),
            pg_catalog.jsonb_build_object('step', 7, 'name', 'freshness',
                'verdict', case when not consulted then 'not consulted' when cap.signal is null then 'not reached'
                    else coalesce(cap.fault, 'fresh') end,
                'limit', case when consulted then eve._span(policy.freshness) end),
            pg_catalog.jsonb_build_object('step', 8, 'name', 'start delay against deadline and value',
                'start_delay', eve._span(cap.start_delay),
                'verdict', case
                    when d.reason = 'deadline_infeasible' then 'infeasible'
                    when not consulted then 'not consulted'
                    when cap.signal is null then 'not reached'
                    when cap.fault is not null or cap.start_delay is null then 'unavailable'
                    when a.deadline is null then 'no deadline'
                    else 'feasible' end),
            pg_catalog.jsonb_build_object('step', 9, 'name', 'budgets',
                'mode', policy.budget_mode, 'items', spent.items, 'item_limit', policy.item_limit,
                'bytes', spent.bytes, 'byte_limit', policy.byte_limit, 'size', a.size,
                'shared_items', spent.shared_items, 'shared_item_limit', policy.shared_item_limit,
                'shared_bytes', spent.shared_bytes, 'shared_byte_limit', policy.shared_byte_limit,
                'oldest_eligible_age', d.facts -> 'oldest_eligible_age', 'age_limit', eve._span(policy.age_limit),
                'dependencies', policy.dependencies),
            pg_catalog.jsonb_build_object('step', 10, 'name', 'coalesce', 'rule', policy.coalesce,
                'key', a.coalescing_key, 'survivor', d.survivor,
                'replaces', d.replaces));
    end if;
    steps := steps || pg_catalog.jsonb_build_array(
        pg_catalog.jsonb_build_object('step', 11, 'name', 'decide', 'decision', d.decision, 'reason', d.reason),
        pg_catalog.jsonb_build_object('step', 12, 'name', 'payload and authority', 'size', a.size,
            'limit', policy.payload_limit, 'schema', policy.schema_digest,
            'verdict', case
                when d.reason in ('payload_too_large', 'payload_invalid', 'class_not_authorised') then d.reason
                when policy.schema_digest is null then 'no schema declared'
                else coalesce(d.facts -> 'payload' ->> 'verdict', 'not reached') end,
            'faults', d.facts -> 'payload' -> 'faults'));
    if ended then
        last := pg_catalog.jsonb_build_array(
            pg_catalog.jsonb_build_object('step', 13, 'name', 're-check before the lease', 'verdict', 'not reached'),
            pg_catalog.jsonb_build_object('step', 14, 'name', 'fence one attempt', 'verdict', 'not reached'),
            pg_catalog.jsonb_build_object('step', 15, 'name', 'bind effect evidence', 'verdict', 'not reached'),
            pg_catalog.jsonb_build_object('step', 16, 'name', 'terminal record', 'verdict', d.decision));
    else
        last := '[{"step": 13, "name": "re-check before the lease", "verdict": "at acquisition"},'
            ' {"step": 14, "name": "fence one attempt", "verdict": "at acquisition"},'
            ' {"step": 15, "name": "bind effect evidence", "verdict": "at completion"},'
            ' {"step": 16, "name": "terminal record", "verdict": "at the end"}]';
    end if;
    return case when holds <> '[]' then pg_catalog.jsonb_build_object('holds', holds) else '{}' end
        || pg_catalog.jsonb_build_object(
        'at', eve._utc(a.at),
        'policy_revision', a.revision,
        'capacity_evidence', case when consulted then coalesce(cap.fault, case when cap.signal is null
            then 'not reached' else 'fresh' end) else 'not consulted' end,
        'steps', steps || last);
end
$$;

comment on function eve._evidence(eve.asked, eve.decided, jsonb) is
'The sixteen steps of an admission with what each read: a null is evidence that was not there, and what a refusal left unread says so.';

commit;
