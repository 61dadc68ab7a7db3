-- view/facts.sql · everything on record that bears on one item, gathered once: what explain, checks and statement read.
begin;

create function eve._in_the_way(c eve.caller, k eve.candidate, at timestamptz)
returns text
language plpgsql
stable
as $$
begin
    return case
        when c.halted then 'queue is halted'
        when k.class_paused then 'class is paused'
        else coalesce(
            eve._hopeless(c.queue_id, k.item, at),
            eve._condemn(c, k, at),
            eve._downstream(c.queue_id, k.policy, at))
    end;
end
$$;

comment on function eve._in_the_way(eve.caller, eve.candidate, timestamptz) is
'What keeps a ready item from being considered for a lease now, whatever slots are free: halt, pause, lifetime, cancellation, payload, budget, or an outside dependency; null when nothing does.';

create function eve._snapshot_at(
    queue_id bigint,
    class_id integer,
    policy eve.policy,
    at timestamptz,
    consulted boolean,
    spent jsonb
)
returns jsonb
language plpgsql
stable
as $$
declare
    o eve.observation;
begin
    if consulted then
        select x.* into o from eve.observation as x
        where x.queue_id = _snapshot_at.queue_id and x.class_id = _snapshot_at.class_id
            and x.observed_at <= _snapshot_at.at
        order by x.observed_at desc, x.tx desc limit 1;
    end if;
    return pg_catalog.jsonb_build_object(
        'observed_at', o.observed_at,
        'depth', coalesce(pg_catalog.to_jsonb(o.stored_items), spent -> 'items'),
        'bytes', coalesce(pg_catalog.to_jsonb(o.stored_bytes), spent -> 'bytes'),
        'oldest_age', coalesce(pg_catalog.to_jsonb(o.oldest_eligible_age), spent -> 'oldest_eligible_age',
            case when o.eligible_items = 0 then '"none eligible"'::jsonb end),
        'arrivals', o.arrivals,
        'completions', o.completions,
        'window', nullif(o.measured, interval '0'),
        'start_delay', o.start_delay,
        'dependency_capacity', (
            select pg_catalog.jsonb_object_agg(d.name, coalesce(h.capacity::text, h.health))
            from pg_catalog.unnest(policy.dependencies) as d (name)
            cross join lateral (
                select x.capacity, x.health from eve.health as x
                where x.queue_id = _snapshot_at.queue_id and x.dependency = d.name
                    and x.observed_at <= _snapshot_at.at
                order by x.told desc limit 1
            ) as h));
end
$$;

comment on function eve._snapshot_at(bigint, integer, eve.policy, timestamptz, boolean, jsonb) is
'What a decision of that instant had before it: the observation then newest where evidence was consulted, else what its budgets counted, and what was told of outside dependencies. A null was not there.';

create function eve._facts_of(c eve.caller, item bigint, at timestamptz)
returns jsonb
language plpgsql
stable
set timezone to 'UTC'
set intervalstyle to postgres
as $$
declare
    w eve.work_item;
    i eve.intent;
    k record;
    found_one eve.candidate;
    policy eve.policy;
    s eve.state;
    first record;
    last record;
    o eve.observation;
    cap eve.capacity;
    parts jsonb;
    live boolean;
    completed integer;
    verdict text;
begin
    select x.* into w from eve.work_item as x where x.queue_id = c.queue_id and x.item = _facts_of.item;
    select x.* into i from eve.intent as x where x.queue_id = c.queue_id and x.item = _facts_of.item;
    s := w.queue_state;
    select x.name, x.revision, x.paused, r.policy, r.answers, r.document into k
    from eve.work_class as x
    join eve.class_revision as r
        on r.queue_id = x.queue_id and r.class_id = x.class_id and r.revision = x.revision
    where x.queue_id = c.queue_id and x.class_id = w.class_id;
    policy := eve._policy(c.queue_id, w.class_id, s.revision);
    select l.kind, l.at, l.actor, l.reason, l.data, l.revision into first
    from eve.ledger as l where l.queue_id = c.queue_id and l.item = _facts_of.item and l.version = 1;
    select l.kind, l.at, l.actor, l.reason, l.data into last
    from eve.ledger as l where l.queue_id = c.queue_id and l.item = _facts_of.item and l.version = s.version;
    completed := (
        select min(l.version) from eve.ledger as l
        where l.queue_id = c.queue_id and l.item = _facts_of.item and l.phase in ('completed', 'verified'));
    select
        pg_catalog.jsonb_build_object(
            'acquired_at', max(l.at) filter (where l.kind = 'acquired'),
            'acquired_revision', max(l.revision) filter (where l.kind = 'acquired'),
            'completed_at', min(l.at) filter (where l.version = completed),
            'acquired_after', pg_catalog.count(*) filter (where l.kind = 'acquired' and l.version > completed),
            'lost', pg_catalog.count(*) filter (where l.kind ^@ 'lease_'),
            'uncertain', pg_catalog.count(*) filter (where l.phase = 'uncertain' and l.kind not in
                ('reconciled', 'effect_observed', 'cancel_requested')),
            'reconciled', pg_catalog.count(*) filter (where l.kind = 'reconciled' and l.phase <> 'uncertain'
                or l.kind in ('completed', 'rejected') and l.phase <> 'reported'),
            'decided_last', max(l.at) filter (where l.kind in ('admitted', 'held', 'released', 'expired')),
            'record', (pg_catalog.array_agg(l.data -> 'record' order by l.version desc)
                filter (where l.data ? 'record'))[1],
            'lease', (pg_catalog.array_agg(
                pg_catalog.format('item %s by %s (%s)', l.item, l.principal, l.worker)
                order by l.version desc) filter (where l.kind = 'acquired'))[1])
    into parts
    from eve.ledger as l
    where l.queue_id = c.queue_id and l.item = _facts_of.item;
    parts := parts || pg_catalog.jsonb_build_object('kinds', (
        select pg_catalog.jsonb_object_agg(n.kind, n.times)
        from (
            select l.kind, pg_catalog.count(*) as times from eve.ledger as l
            where l.queue_id = c.queue_id and l.item = _facts_of.item group by l.kind
        ) as n));
    o := eve._latest(c.queue_id, w.class_id);
    cap := eve._capacity(c.queue_id, w.class_id, at);
    live := s.phase = 'leased' and s.expires_at > at;
    found_one := eve._candidate(c, item);
    verdict := case when policy.schema_digest is not null then eve._payload_now(c.queue_id, item) ->> 'verdict' end;
    return parts || pg_catalog.jsonb_build_object(
        'at', at,
        'queue', c.queue,
        'item', item,
        'class', k.name,
        'revision', k.revision,
        'admitted_revision', s.revision,
        'answers', k.answers,
        'work_id', i.work_id,
        'operation', i.operation_identity,
        'effect', i.effect_identity,
        'cancellation_identity', i.cancellation_identity,
        'digest', pg_catalog.encode(i.payload_digest, 'hex'),
        'size', i.payload_size,
        'requested_at', i.requested_at,
        'starts_from', coalesce(i.not_before, i.requested_at),
        'deadline', i.deadline,
        'margin', nullif(i.minimum_completion_margin, interval '0'),
        'value_until', i.value_until,
        'dependency_revisions', i.dependency_revisions,
        'schema', policy.schema_digest,
        -- Nobody able to say, or nothing left to judge, is no verdict.
        'payload', case when verdict in ('valid', 'invalid') then verdict end,
        'schema_declared', verdict is not null and verdict <> 'no schema declared',
        'authorised', coalesce(i.principal = any (policy.submitters), true),
        'payload_limit', policy.payload_limit,
        'replay_class', i.replay_class,
        'protection', policy.protection,
        'completion_test', eve._test_of(i.completion_test, policy),
        'expected', coalesce(i.expected_effects, array[i.effect_identity]),
        'observed', (select pg_catalog.jsonb_agg(distinct e.effect_identity) from eve.effect as e
            where e.queue_id = c.queue_id and e.item = _facts_of.item and e.kind = 'observed'),
        'key', i.coalescing_key,
        'merge_rule', policy.coalesce,
        'boundary', policy.cancel_boundary,
        'retry_owner', policy.retry_owner,
        'admission_owner', 'eve_submit',
        'holder', coalesce(s.principal, 'whoever holds the next lease'))
    || pg_catalog.jsonb_build_object(
        'phase', s.phase,
        'reason', s.reason,
        'rank', s.rank,
        'ready_since', s.ready_since,
        'attempts', s.attempts,
        'budget', eve._budget(policy, s),
        'token', nullif(s.token, 0)::text,
        'live', live,
        'effect_started', s.effect_started,
        'cancel_requested', s.cancel_requested,
        'cancelled', s.phase = 'cancelled' or s.cancel_requested
            or eve._tombstone(c.queue_id, i.cancellation_identity, i.principal),
        'in_the_way', case s.phase when 'ready' then eve._in_the_way(c, found_one, at)
            when 'leased' then eve._hopeless(c.queue_id, item, at) end,
        'holds', eve._holds(c.queue_id, item),
        -- What was taken over from another system was never decided here.
        'decision', case first.kind when 'held' then 'HOLD' when 'admitted' then 'ADMIT' end,
        'decision_reason', case when first.kind <> 'imported' then coalesce(first.reason, 'every check passed') end,
        'decided_at', first.at,
        'decided_by', first.actor,
        'stored', true)
    || pg_catalog.jsonb_build_object(
        'consulted', nullif(coalesce(first.data -> 'evidence' ->> 'capacity_evidence', 'not consulted'),
            'not consulted'),
        'capacity_mode', nullif(policy.evidence, 'none'),
        'freshness', case when policy.evidence <> 'none' then policy.freshness end,
        'observed_at', o.observed_at,
        'fault', case when o.observed_at is not null then coalesce(cap.fault, 'fresh') end,
        'window', nullif(o.measured, interval '0'),
        'arrivals', o.arrivals,
        'completions', o.completions,
        'in_flight', o.in_flight,
        'queued_items', o.queued_items,
        'queued_bytes', o.queued_bytes,
        'oldest_eligible_age', coalesce(pg_catalog.to_jsonb(o.oldest_eligible_age),
            case when o.eligible_items = 0 then '"none eligible"'::jsonb end),
        'worker_limit', o.worker_limit,
        'reserved_capacity', nullif(o.reserved_capacity, 0),
        'start_delay', case when live then interval '0' else o.start_delay end,
        'drain', nullif(o.drain, 'unavailable'),
        'item_limit', coalesce(policy.item_limit, policy.shared_item_limit),
        'byte_limit', coalesce(policy.byte_limit, policy.shared_byte_limit),
        'shared_item_limit', policy.shared_item_limit,
        'age_limit', policy.age_limit,
        'wait_hint', policy.wait_hint,
        'retention', policy.retention,
        'dependencies', policy.dependencies,
        'dependency_capacity', (
            select pg_catalog.jsonb_object_agg(d.name, coalesce((eve._told(c.queue_id, d.name)).capacity::text,
                eve._health(c.queue_id, d.name, _facts_of.at, false)))
            from pg_catalog.unnest(policy.dependencies) as d (name)
            where (eve._told(c.queue_id, d.name)).told is not null),
        'aging_interval', c.aging_interval,
        'contract_revision', (select x.revision from eve.contract as x),
        'refused', (
            select pg_catalog.jsonb_object_agg(r.reason, r.times)
            from (
                select x.reason, pg_catalog.count(*) as times
                from (
                    select y.class, y.reason from eve.submission as y
                    where y.queue_id = c.queue_id order by y.submission desc limit 1000
                ) as x
                where x.class = k.name and x.reason in
                    ('item_budget_exhausted', 'byte_budget_exhausted', 'age_budget_exceeded', 'deadline_infeasible')
                group by x.reason
            ) as r),
        'snapshot', eve._snapshot_at(c.queue_id, w.class_id, policy, (parts ->> 'decided_last')::timestamptz,
            policy.evidence <> 'none', first.data #> '{evidence,steps,8}'),
        'end', case when s.phase not in ('held', 'ready', 'leased', 'reported')
            then pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
                'kind', last.kind, 'phase', s.phase, 'at', last.at, 'by', last.actor, 'reason', last.reason)) end);
end
$$;

comment on function eve._facts_of(eve.caller, bigint, timestamptz) is
'Everything on record that bears on one item: envelope, policy and its answerers, events, effects, evidence of capacity. A null is what is not on record; nothing is assumed.';

commit;
