-- admit/past.sql · recorded submissions, and what the checks would have read when they came. Reads only.
begin;

create type eve.recorded as (
    at timestamptz,
    item bigint,
    submission bigint,
    revision integer,
    principal text,
    decision text,
    reason text,
    holds jsonb,
    counts jsonb,
    verdict jsonb,
    own_replay_class text,
    own_margin interval,
    merged_with bigint,
    envelope eve.asked,
    asked eve.asked
);

comment on type eve.recorded is
'One recorded submission: its envelope as recorded and as it was asked without what the class filled in, what was decided by which revision, with which holds, counts and verdict on the payload; merged_with is the item that stood for it, or that it replaced.';

create function eve._phase_then(queue_id bigint, item bigint, at timestamptz)
returns text
language sql
stable
begin atomic
    select l.phase from eve.ledger as l
    where l.queue_id = _phase_then.queue_id and l.item = _phase_then.item and l.at <= _phase_then.at
    order by l.version desc limit 1;
end;

comment on function eve._phase_then(bigint, bigint, timestamptz) is 'The phase of an item at an instant, from its events.';

create function eve._recorded(queue_id bigint, class text, of_item bigint, of_submission bigint)
returns eve.recorded
language plpgsql
stable
as $$
declare
    r eve.recorded;
    a eve.asked;
    then_policy eve.policy;
    evidence jsonb;
    stored record;
begin
    if of_item is not null then
        select i.*, l.kind, l.reason, l.revision, l.data into stored
        from eve.intent as i
        join eve.ledger as l on l.queue_id = i.queue_id and l.item = i.item and l.version = 1
        where i.queue_id = _recorded.queue_id and i.item = of_item;
        r.at := stored.submitted_at;
        r.item := of_item;
        r.revision := stored.revision;
        r.principal := stored.principal;
        r.decision := case stored.kind when 'held' then 'HOLD' else 'ADMIT' end;
        r.reason := stored.reason;
        r.holds := coalesce(stored.data -> 'holds', '[]');
        evidence := stored.data -> 'evidence';
        a.work_id := stored.work_id;
        a.operation_identity := stored.operation_identity;
        a.effect_identity := stored.effect_identity;
        a.cancellation_identity := stored.cancellation_identity;
        a.coalescing_key := stored.coalescing_key;
        a.limit_key := stored.limit_key;
        a.payload := stored.payload;
        a.size := stored.payload_size;
        a.digest := stored.payload_digest;
        a.replay_class := stored.replay_class;
        a.not_before := stored.not_before;
        a.deadline := stored.deadline;
        a.margin := stored.minimum_completion_margin;
        a.value_until := stored.value_until;
        a.requested_at := stored.requested_at;
        a.derived := stored.derived;
        a.effect_named := not 'effect_identity' = any (stored.derived);
        a.expected_effects := stored.expected_effects;
        a.completion_test := stored.completion_test;
        a.priority_class := stored.priority_class;
        a.alone := stored.edges = 0 and stored.parent is null
            and not r.holds @> '[{"reason": "awaiting_decision"}]';
        r.merged_with := (stored.data ->> 'replaces')::bigint;
        a.awaited := (
            select (h ->> 'ref')::bigint from pg_catalog.jsonb_array_elements(r.holds) as h
            where h ->> 'reason' = 'awaiting_decision');
    else
        select s.* into stored from eve.submission as s
        where s.queue_id = _recorded.queue_id and s.submission = of_submission;
        r.at := stored.at;
        r.submission := of_submission;
        r.revision := stored.revision;
        r.principal := stored.principal;
        r.decision := stored.decision;
        r.reason := stored.reason;
        r.holds := '[]';
        evidence := stored.evidence;
        a.work_id := stored.work_id;
        a.operation_identity := evidence #>> '{steps,0,operation}';
        a.effect_identity := evidence #>> '{steps,0,effect}';
        a.coalescing_key := evidence #>> '{steps,9,key}';
        a.size := stored.payload_size;
        a.digest := stored.payload_digest;
        a.replay_class := evidence #>> '{steps,3,replay_class}';
        a.not_before := (evidence #>> '{steps,2,not_before}')::timestamptz;
        a.deadline := (evidence #>> '{steps,2,deadline}')::timestamptz;
        a.margin := (evidence #>> '{steps,2,margin}')::interval;
        a.value_until := (evidence #>> '{steps,1,value_until}')::timestamptz;
        a.awaited := (evidence #>> '{steps,1,awaits}')::bigint;
        a.requested_at := coalesce((evidence #>> '{steps,0,requested_at}')::timestamptz, stored.at);
        a.derived := array(
            select x.name from pg_catalog.jsonb_array_elements_text(evidence #> '{steps,0,derived}') as x (name));
        a.effect_named := not 'effect_identity' = any (a.derived);
        a.expected_effects := case when evidence #>> '{steps,0,expected_effects}' is not null then array(
            select x.name from pg_catalog.jsonb_array_elements_text(
                evidence #> '{steps,0,expected_effects}') as x (name)) end;
        a.completion_test := evidence #>> '{steps,0,completion_test}';
        a.priority_class := (evidence #>> '{steps,0,priority_class}')::smallint;
        a.alone := (evidence #>> '{steps,0,alone}')::boolean;
        r.merged_with := (evidence #>> '{steps,9,survivor}')::bigint;
        a.lineage_fault := case when r.reason in ('lease_not_live', 'lineage_limit') then r.reason end;
    end if;
    a.class := class;
    a.at := r.at;
    a.revision := r.revision;
    a.class_id := (
        select k.class_id from eve.work_class as k where k.queue_id = _recorded.queue_id and k.name = class);
    then_policy := (
        select v.policy from eve.class_revision as v
        where v.queue_id = _recorded.queue_id and v.class_id = a.class_id and v.revision = r.revision);
    a.policy := then_policy;
    r.envelope := a;
    r.counts := evidence #> '{steps,8}';
    if r.item is not null and r.merged_with is not null then
        -- What it replaced was counted out then.
        r.counts := (
            select pg_catalog.jsonb_object_agg(k.key, case
                when k.key in ('items', 'shared_items') then (k.value::text::bigint + 1)::text::jsonb
                when k.key in ('bytes', 'shared_bytes') then (k.value::text::bigint + w.size)::text::jsonb
                else k.value end)
            from eve.work_item as w
            cross join pg_catalog.jsonb_each(pg_catalog.jsonb_strip_nulls(r.counts)) as k (key, value)
            where w.queue_id = _recorded.queue_id and w.item = r.merged_with);
    end if;
    r.verdict := case
        when then_policy.schema_digest is null then null
        when r.reason = 'payload_invalid' then pg_catalog.jsonb_build_object(
            'verdict', 'invalid', 'faults', evidence #> '{steps,11,faults}')
        when r.item is not null and r.holds @> '[{"reason": "validator_unavailable"}]' is false
            or evidence #>> '{steps,11,verdict}' = 'valid' then '{"verdict": "valid"}'
    end;
    -- What the class added then is taken away again; what cannot be told from it counts as the class's.
    r.own_replay_class := case when a.replay_class <> then_policy.replay_class then a.replay_class end;
    r.own_margin := case when a.margin > then_policy.completion_margin then a.margin end;
    if 'deadline' = any (a.derived) then
        a.deadline := null;
    end if;
    if 'value_until' = any (a.derived) then
        a.value_until := null;
    end if;
    r.asked := a;
    return r;
end
$$;

comment on function eve._recorded(bigint, text, bigint, bigint) is
'A stored item''s or a refused submission''s record as it was asked: what the class filled in then is taken out again.';

create function eve._asked_again(r eve.recorded, policy eve.policy)
returns eve.asked
language plpgsql
stable
as $$
declare
    a eve.asked := r.asked;
begin
    a.policy := policy;
    a.deadline := coalesce(a.deadline, a.requested_at + policy.life);
    a.value_until := coalesce(a.value_until, a.requested_at + policy.value_window);
    a.margin := greatest(r.own_margin, policy.completion_margin);
    a.replay_class := (
        select c.replay_class from eve.replay_class as c
        where c.replay_class in (r.own_replay_class, policy.replay_class)
        order by c.severity desc limit 1);
    return a;
end
$$;

comment on function eve._asked_again(eve.recorded, eve.policy) is
'A recorded submission as it would be asked under another policy.';

create function eve._past(
    queue_id bigint,
    r eve.recorded,
    policy eve.policy,
    schema jsonb,
    oldest timestamptz,
    owned boolean,
    elsewhere boolean
)
returns eve.past
language plpgsql
stable
as $$
declare
    p eve.past;
    a eve.asked := r.asked;
    o eve.observation;
begin
    p.at := r.at;
    p.cancelled := coalesce(r.reason = 'intent_cancelled', false);
    p.awaited := (
        select case when d.decided_at <= r.at then d.phase else 'open' end
        from eve.decision as d where d.queue_id = _past.queue_id and d.decision = a.awaited);
    p.schema := schema;
    p.payload := case when policy.schema_digest = (a.policy).schema_digest then r.verdict end;
    if policy.effect_unique then
        p.effect_seen := exists (
            select from eve.effect as e
            where e.queue_id = _past.queue_id and e.effect_identity = a.effect_identity
                and e.kind = 'observed' and e.at <= r.at and e.item is distinct from r.item);
        p.effect_live := owned or elsewhere and exists (
            select from eve.intent as i
            where i.queue_id = _past.queue_id and i.effect_identity = a.effect_identity
                and i.class_id <> a.class_id and i.effect_unique and i.submitted_at <= r.at
                and eve._live(eve._phase_then(i.queue_id, i.item, r.at)));
    end if;
    p.oldest_eligible := oldest;
    if policy.evidence <> 'none' then
        select x.* into o from eve.observation as x
        where x.queue_id = _past.queue_id and x.class_id = a.class_id and x.observed_at <= r.at
        order by x.observed_at desc, x.tx desc limit 1;
        o.freshness_limit := policy.freshness;
        p.capacity := eve._capacity_of(o, r.at);
    end if;
    p.health := (
        select pg_catalog.jsonb_object_agg(d.name, eve._health_told((
            select h from eve.health as h
            where h.queue_id = _past.queue_id and h.dependency = d.name and h.observed_at <= r.at
            order by h.observed_at desc, h.told desc limit 1), r.at))
        from pg_catalog.unnest(policy.dependencies) as d (name));
    return p;
end
$$;

comment on function eve._past(bigint, eve.recorded, eve.policy, jsonb, timestamptz, boolean, boolean) is
'What the checks would have read at the instant of a recorded submission: cancellation and decision as recorded, effects, observations and health as they stood then; owned says that the effect of this class is taken, elsewhere that another class may have taken it.';

commit;
