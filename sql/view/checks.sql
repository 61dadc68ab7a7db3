-- view/checks.sql · what an item answers to each question, from the facts on record.
begin;

create type eve.check_answer as (
    code text,
    kind text,
    name text,
    answer boolean,
    evidence jsonb,
    unavailable text[]
);

comment on type eve.check_answer is
'Answer of eve_checks, a row a code: answer is null where evidence that it needs is not on record; unavailable names what is missing.';

create function eve._checks_of(f jsonb)
returns setof eve.check_answer
language sql
stable
begin atomic
    -- What is named in the evidence and not on record makes the answer unavailable.
    select
        n.code, n.kind, n.name,
        case when u.missing = '{}' then v.answer end,
        pg_catalog.jsonb_strip_nulls(v.evidence),
        u.missing
    from (values
        ('A1-001', pg_catalog.jsonb_build_object(
            'digest', f -> 'digest',
            'size', f -> 'size',
            'decided_at', f -> 'decided_at'),
            true),
        ('A1-002', pg_catalog.jsonb_build_object(
            'admitted_revision', f -> 'admitted_revision',
            'phase', f -> 'phase',
            'size', f -> 'size',
            'payload', case when coalesce(f ->> 'reason', '') = 'payload_invalid' then '"payload_invalid"'
                when (f ->> 'schema_declared')::boolean then f -> 'payload' else '"no schema declared"' end),
            coalesce(f ->> 'reason', '') <> 'payload_invalid' and coalesce(f ->> 'payload', 'valid') = 'valid'
                and (f ->> 'size')::integer <= (f ->> 'payload_limit')::integer),
        ('A1-003', pg_catalog.jsonb_build_object(
            'phase', f -> 'phase',
            'in_the_way', coalesce(f -> 'in_the_way', '"nothing"')),
            f ->> 'phase' in ('ready', 'leased') and f ->> 'in_the_way' is null and not (f ->> 'cancelled')::boolean),
        ('A1-004', pg_catalog.jsonb_build_object(
            'live', f -> 'live'),
            (f ->> 'live')::boolean),
        ('A1-005', pg_catalog.jsonb_build_object(
            'phase', f -> 'phase',
            'completion_test', f -> 'completion_test'),
            f ->> 'phase' in ('completed', 'verified')),
        ('A2-001', pg_catalog.jsonb_build_object(
            'operation', f -> 'operation',
            'effect', f -> 'effect'),
            true),
        ('A2-002', pg_catalog.jsonb_build_object(
            'value_until', f -> 'value_until'),
            (f ->> 'value_until')::timestamptz > (f ->> 'at')::timestamptz),
        ('A2-003', pg_catalog.jsonb_build_object(
            'deadline', f -> 'deadline'),
            (f ->> 'deadline')::timestamptz > (f ->> 'at')::timestamptz),
        ('A2-004', pg_catalog.jsonb_build_object(
            'replay_class', f -> 'replay_class'),
            f ->> 'replay_class' <> 'unknown'),
        ('A2-005', pg_catalog.jsonb_build_object(
            'decision', f -> 'decision',
            'decision_reason', f -> 'decision_reason'),
            f ->> 'decision' = 'ADMIT'),
        ('A2-006', pg_catalog.jsonb_build_object(
            'rank', f -> 'rank',
            'aging_interval', f -> 'aging_interval'),
            true),
        ('A2-007', pg_catalog.jsonb_build_object(
            'window', f -> 'window',
            'completions', f -> 'completions',
            'worker_limit', f -> 'worker_limit',
            'fresh', case when f ->> 'fault' = 'fresh' then 'true'::jsonb end),
            true),
        ('A2-008', pg_catalog.jsonb_build_object(
            'retry_owner', f -> 'retry_owner'),
            true),
        ('A2-009', pg_catalog.jsonb_build_object(
            'cancellation_identity', f -> 'cancellation_identity',
            'boundary', f -> 'boundary'),
            true),
        ('A2-010', pg_catalog.jsonb_build_object(
            'completion_test', f -> 'completion_test'),
            true),
        ('A2-063', pg_catalog.jsonb_build_object(
            'cancellation_identity', f -> 'cancellation_identity',
            'cancelled', f -> 'cancelled'),
            not (f ->> 'cancelled')::boolean),
        ('A2-064', pg_catalog.jsonb_build_object(
            'cancellation_identity', f -> 'cancellation_identity',
            'cancelled', f -> 'cancelled'),
            (f ->> 'cancelled')::boolean),
        ('A2-065', pg_catalog.jsonb_build_object(
            'value_until', f -> 'value_until'),
            (f ->> 'value_until')::timestamptz > (f ->> 'at')::timestamptz),
        ('A2-066', pg_catalog.jsonb_build_object(
            'deadline', f -> 'deadline',
            'start_delay', f -> 'start_delay',
            'fresh', case when f ->> 'fault' = 'fresh' or (f ->> 'live')::boolean then 'true'::jsonb end),
            greatest((f ->> 'at')::timestamptz, (f ->> 'starts_from')::timestamptz)
                + (f ->> 'start_delay')::interval + coalesce((f ->> 'margin')::interval, '0')
                <= (f ->> 'deadline')::timestamptz),
        ('A2-067', pg_catalog.jsonb_build_object(
            'decision', f -> 'decision',
            'admitted_revision', f -> 'admitted_revision',
            'decided_at', f -> 'decided_at'),
            true),
        ('A2-068', pg_catalog.jsonb_build_object(
            'decision', f -> 'decision'),
            false),
        ('A2-069', pg_catalog.jsonb_build_object(
            'digest', f -> 'digest',
            'decided_at', f -> 'decided_at'),
            true),
        ('A2-070', pg_catalog.jsonb_build_object(
            'payload', f -> 'payload',
            'revision', f -> 'revision',
            'authorised', f -> 'authorised'),
            f ->> 'payload' = 'valid' and (f ->> 'authorised')::boolean),
        ('A2-071', pg_catalog.jsonb_build_object(
            'phase', f -> 'phase'),
            f ->> 'phase' = 'coalesced'),
        ('A2-072', pg_catalog.jsonb_build_object(
            'phase', f -> 'phase',
            'in_the_way', coalesce(f -> 'in_the_way', '"nothing"')),
            f ->> 'phase' = 'ready' and f ->> 'in_the_way' is null),
        ('A2-073', pg_catalog.jsonb_build_object(
            'live', f -> 'live'),
            (f ->> 'live')::boolean),
        ('A2-074', pg_catalog.jsonb_build_object(
            'expected', f -> 'expected',
            'observed', coalesce(f -> 'observed', '[]')),
            coalesce(f -> 'observed' @> (f -> 'expected'), false)),
        ('A2-075', pg_catalog.jsonb_build_object(
            'phase', f -> 'phase',
            'effect_started', f -> 'effect_started',
            'live', f -> 'live',
            'observed', coalesce(f -> 'observed', '[]')),
            f ->> 'phase' = 'uncertain'
                or (f ->> 'effect_started')::boolean and not (f ->> 'live')::boolean
                and f ->> 'phase' not in ('completed', 'verified')
                and not coalesce(f -> 'observed' @> (f -> 'expected'), false)),
        ('A2-076', pg_catalog.jsonb_build_object(
            'phase', f -> 'phase'),
            f ->> 'phase' = 'uncertain' or coalesce(f ->> 'reason' = 'reconciliation_required', false)),
        ('A2-077', pg_catalog.jsonb_build_object(
            'phase', f -> 'phase'),
            f ->> 'phase' = 'expired'),
        ('A2-078', pg_catalog.jsonb_build_object(
            'phase', f -> 'phase'),
            f ->> 'phase' in ('quarantined', 'dead')),
        ('A2-079', pg_catalog.jsonb_build_object(
            'phase', f -> 'phase'),
            f ->> 'phase' in ('completed', 'verified')),
        ('A2-080', pg_catalog.jsonb_build_object(
            'class', f -> 'class'),
            f ->> 'drain' is not null and coalesce(f ->> 'fault', '') = 'fresh'),
        ('A2-081', pg_catalog.jsonb_build_object(
            'class', f -> 'class'),
            f ->> 'drain' is null or coalesce(f ->> 'fault', '') <> 'fresh'),
        ('A1-087', pg_catalog.jsonb_build_object(
            'operation', f -> 'operation',
            'effect', f -> 'effect'),
            true),
        ('A1-088', pg_catalog.jsonb_build_object(
            'work_id', f -> 'work_id',
            'effect', f -> 'effect'),
            f ->> 'work_id' <> f ->> 'effect'),
        ('A1-089', pg_catalog.jsonb_build_object(
            'starts_from', f -> 'starts_from',
            'deadline', f -> 'deadline',
            'margin', f -> 'margin'),
            true),
        ('A1-090', pg_catalog.jsonb_build_object(
            'cancellation_identity', f -> 'cancellation_identity',
            'boundary', f -> 'boundary'),
            true),
        ('A1-091', pg_catalog.jsonb_build_object(
            'admitted_revision', f -> 'admitted_revision',
            'schema', f -> 'schema',
            'dependency_revisions', f -> 'dependency_revisions'),
            true),
        ('A1-092', pg_catalog.jsonb_build_object(
            'consulted', f -> 'consulted',
            'observed_at', f -> 'observed_at'),
            f ->> 'consulted' = 'fresh'),
        ('A1-093', pg_catalog.jsonb_build_object(
            'queued_items', f -> 'queued_items',
            'queued_bytes', f -> 'queued_bytes',
            'oldest_eligible_age', f -> 'oldest_eligible_age',
            'arrivals', f -> 'arrivals',
            'completions', f -> 'completions',
            'in_flight', f -> 'in_flight',
            'dependencies', coalesce(f -> 'dependency_capacity',
                case when f ->> 'dependencies' is null then '"none named"'::jsonb end)),
            true),
        ('A1-094', pg_catalog.jsonb_build_object(
            'consulted', f -> 'consulted'),
            f ->> 'consulted' = 'fresh' or f ->> 'decision' = 'HOLD' or f ->> 'capacity_mode' = 'limit'),
        ('A1-095', pg_catalog.jsonb_build_object(
            'replay_class', f -> 'replay_class'),
            f ->> 'replay_class' <> 'unknown'),
        ('A1-096', pg_catalog.jsonb_build_object(
            'replay_class', f -> 'replay_class',
            'protection', case when f ->> 'replay_class' = 'destination_protected' then f -> 'protection'
                else '"not claimed"' end),
            f ->> 'replay_class' <> 'destination_protected' or f ->> 'deadline' is not null
                and (f ->> 'decided_at')::timestamptz + (f #>> '{protection,retention}')::interval
                    >= (f ->> 'deadline')::timestamptz),
        ('A1-097', pg_catalog.jsonb_build_object(
            'admission_owner', f -> 'admission_owner',
            'retry_owner', f -> 'retry_owner',
            'holder', f -> 'holder'),
            true),
        ('A1-098', pg_catalog.jsonb_build_object(
            'token', f -> 'token'),
            true),
        ('A1-099', pg_catalog.jsonb_build_object(
            'decision', f -> 'decision',
            'decision_reason', f -> 'decision_reason'),
            true),
        ('A1-100', pg_catalog.jsonb_build_object(
            'holds', f -> 'holds'),
            not exists (select from pg_catalog.jsonb_array_elements(f -> 'holds') as h (value)
                where not h.value ?& array['owner', 'trigger'])),
        ('A1-101', pg_catalog.jsonb_build_object(
            'phase', f -> 'phase',
            'live', f -> 'live'),
            true),
        ('A1-102', pg_catalog.jsonb_build_object(
            'uncertain', f -> 'uncertain',
            'reconciled', f -> 'reconciled',
            'phase', f -> 'phase'),
            f ->> 'phase' = 'uncertain' or (f ->> 'reconciled')::integer >= (f ->> 'uncertain')::integer),
        ('A1-103', pg_catalog.jsonb_build_object(
            'completion_test', f -> 'completion_test',
            'expected', f -> 'expected'),
            f ->> 'completion_test' <> 'report'),
        ('A1-104', pg_catalog.jsonb_build_object(
            'kinds', f -> 'kinds'),
            true),
        ('A1-105', pg_catalog.jsonb_build_object(
            'record', f -> 'record'),
            true),
        ('A2-133', pg_catalog.jsonb_build_object(
            'operation', f -> 'operation',
            'effect', f -> 'effect',
            'digest', f -> 'digest'),
            true),
        ('A2-134', pg_catalog.jsonb_build_object(
            'value_until', f -> 'value_until'),
            true),
        ('A2-135', pg_catalog.jsonb_build_object(
            'deadline', f -> 'deadline'),
            true),
        ('A2-136', pg_catalog.jsonb_build_object(
            'margin', f -> 'margin'),
            true),
        ('A2-137', pg_catalog.jsonb_build_object(
            'item_limit', f -> 'item_limit',
            'byte_limit', f -> 'byte_limit'),
            true),
        ('A2-138', pg_catalog.jsonb_build_object(
            'oldest_eligible_age', f -> 'oldest_eligible_age'),
            true),
        ('A2-139', pg_catalog.jsonb_build_object(
            'window', f -> 'window',
            'arrivals', f -> 'arrivals',
            'completions', f -> 'completions'),
            true),
        ('A2-140', pg_catalog.jsonb_build_object(
            'capacity_mode', f -> 'capacity_mode',
            'freshness', f -> 'freshness'),
            true),
        ('A2-141', pg_catalog.jsonb_build_object(
            'dependencies', f -> 'dependencies',
            'dependency_capacity', f -> 'dependency_capacity'),
            true),
        ('A2-142', pg_catalog.jsonb_build_object(
            'decision', f -> 'decision',
            'rank', f -> 'rank'),
            true),
        ('A2-143', pg_catalog.jsonb_build_object(
            'payload', f -> 'payload',
            'authorised', f -> 'authorised',
            'digest', f -> 'digest'),
            f ->> 'payload' = 'valid' and (f ->> 'authorised')::boolean),
        ('A2-144', pg_catalog.jsonb_build_object(
            'ready_since', f -> 'ready_since',
            'acquired_at', f -> 'acquired_at'),
            true),
        ('A2-145', pg_catalog.jsonb_build_object(
            'token', f -> 'token',
            'expected', f -> 'expected'),
            true),
        ('A2-146', pg_catalog.jsonb_build_object(
            'retry_owner', f -> 'retry_owner'),
            true),
        ('A2-147', pg_catalog.jsonb_build_object(
            'attempts', f -> 'attempts',
            'budget', f -> 'budget'),
            (f ->> 'attempts')::integer <= (f ->> 'budget')::integer),
        ('A2-148', pg_catalog.jsonb_build_object(
            'replay_class', f -> 'replay_class'),
            f ->> 'replay_class' in ('safe', 'destination_protected', 'reconcilable')),
        ('A2-149', pg_catalog.jsonb_build_object(
            'token', f -> 'token'),
            true),
        ('A2-150', pg_catalog.jsonb_build_object(
            'deadline', f -> 'deadline',
            'acquired_revision', f -> 'acquired_revision'),
            true),
        ('A2-151', pg_catalog.jsonb_build_object(
            'cancellation_identity', f -> 'cancellation_identity',
            'boundary', f -> 'boundary',
            'acquired_at', f -> 'acquired_at'),
            true),
        ('A2-152', pg_catalog.jsonb_build_object(
            'boundary', f -> 'boundary'),
            f ->> 'boundary' = 'effect_start'),
        ('A2-153', pg_catalog.jsonb_build_object(
            'merge_rule', f -> 'merge_rule'),
            f ->> 'merge_rule' = 'none' or f ->> 'key' is not null),
        ('A2-154', pg_catalog.jsonb_build_object(
            'rank', f -> 'rank',
            'aging_interval', f -> 'aging_interval',
            'contract_revision', f -> 'contract_revision'),
            true),
        ('A2-155', pg_catalog.jsonb_build_object(
            'reserved_capacity', coalesce(f -> 'reserved_capacity', f -> 'shared_item_limit')),
            true),
        ('A2-156', pg_catalog.jsonb_build_object(
            'item_limit', f -> 'item_limit'),
            true),
        ('A2-157', pg_catalog.jsonb_build_object(
            'wait_hint', f -> 'wait_hint'),
            true),
        ('A2-158', pg_catalog.jsonb_build_object(
            'budget', f -> 'budget',
            'retention', f -> 'retention',
            'item_limit', f -> 'item_limit'),
            true),
        ('A2-159', pg_catalog.jsonb_build_object(
            'kinds', f -> 'kinds',
            'phase', f -> 'phase'),
            true),
        ('A2-160', pg_catalog.jsonb_build_object(
            'uncertain', f -> 'uncertain',
            'reconciled', f -> 'reconciled',
            'phase', f -> 'phase'),
            f ->> 'phase' = 'uncertain' or (f ->> 'reconciled')::integer >= (f ->> 'uncertain')::integer),
        ('A2-161', pg_catalog.jsonb_build_object(
            'completed_at', f -> 'completed_at',
            'acquired_after', f -> 'acquired_after'),
            (f ->> 'acquired_after')::integer = 0),
        ('A2-162', pg_catalog.jsonb_build_object(
            'refused', f -> 'refused',
            'lost', nullif(f -> 'lost', '0'),
            'missing_telemetry', case when f ->> 'consulted' in ('missing', 'stale') then f -> 'consulted' end),
            true)
    ) as v (code, evidence, answer)
    join eve.check_item as n on n.code = v.code
    cross join lateral (
        select array(
            select e.key from pg_catalog.jsonb_each(v.evidence) as e
            where e.value = 'null' order by e.key) as missing
    ) as u
    order by case n.kind when 'milestone' then 1 when 'question' then 2 when 'state' then 3 else 4 end, n.code;
end;

comment on function eve._checks_of(jsonb) is
'The answers to each code from the facts of eve._facts_of without nulls, in reading order.';

commit;
