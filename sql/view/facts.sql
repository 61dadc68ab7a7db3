-- view/facts.sql · everything on record that bears on one item, gathered once: what explain, checks and statement read.
begin;

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
    policy eve.policy;
    s eve.state;
    first record;
    last record;
    o eve.observation;
    cap eve.capacity;
    total eve.total;
    parts jsonb;
    live boolean;
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
    select
        pg_catalog.jsonb_build_object(
            'kinds', pg_catalog.jsonb_agg(l.kind order by l.version),
            'acquired_at', max(l.at) filter (where l.kind = 'acquired'),
            'acquired_revision', max(l.revision) filter (where l.kind = 'acquired'),
            'completed_at', min(l.at) filter (where l.phase in ('completed', 'verified')),
            'acquired_after', pg_catalog.count(*) filter (where l.kind = 'acquired' and l.version > d.done),
            'lost', pg_catalog.count(*) filter (where l.kind ^@ 'lease_'),
            'uncertain', pg_catalog.count(*) filter (where l.phase = 'uncertain' and l.kind not in
                ('reconciled', 'effect_observed', 'cancel_requested')),
            'reconciled', pg_catalog.count(*) filter (where l.kind = 'reconciled' and l.phase <> 'uncertain'
                or l.kind in ('completed', 'rejected') and l.phase <> 'reported'),
            'record', (pg_catalog.array_agg(l.data -> 'record' order by l.version desc)
                filter (where l.data ? 'record'))[1])
    into parts
    from eve.ledger as l
    cross join lateral (
        select min(x.version) as done from eve.ledger as x
        where x.queue_id = l.queue_id and x.item = l.item and x.phase in ('completed', 'verified')
    ) as d
    where l.queue_id = c.queue_id and l.item = _facts_of.item;
    o := eve._latest(c.queue_id, w.class_id);
    cap := eve._capacity(c.queue_id, w.class_id, at);
    total := eve._total(c.queue_id, w.class_id, at, false);
    live := s.phase = 'leased' and s.expires_at > at;
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
        'payload', case when policy.schema_digest is null then null
            else nullif(eve._payload_now(c.queue_id, item) ->> 'verdict', 'no schema declared') end,
        'payload_limit', policy.payload_limit,
        'replay_class', i.replay_class,
        'protection', policy.protection,
        'completion_test', i.completion_test,
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
        'lease', case when live then item || '.' || s.token end,
        'live', live,
        'effect_started', s.effect_started,
        'cancel_requested', s.cancel_requested,
        'cancelled', s.phase = 'cancelled'
            or eve._tombstone(c.queue_id, i.cancellation_identity, i.principal),
        'hopeless', eve._hopeless(c.queue_id, item, at),
        'holds', eve._holds(c.queue_id, item),
        'decision', case first.kind when 'held' then 'HOLD' else 'ADMIT' end,
        'decision_reason', coalesce(first.reason, 'every check passed'),
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
        'start_delay', o.start_delay,
        'drain', nullif(o.drain, 'unavailable'),
        'depth', total.held + total.ready,
        'bytes', total.queued_bytes,
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
        'end', case when s.phase in ('verified', 'rejected', 'expired', 'cancelled', 'coalesced', 'dead')
            then pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
                'kind', last.kind, 'phase', s.phase, 'at', last.at, 'by', last.actor, 'reason', last.reason)) end);
end
$$;

comment on function eve._facts_of(eve.caller, bigint, timestamptz) is
'Everything on record that bears on one item: envelope, policy and its answerers, events, effects, evidence of capacity. A null is what is not on record; nothing is assumed.';

commit;
