-- api/submit.sql · store a request and decide its admission. Appends: admitted, held. Raises: not_admitted with must_admit, idempotency_conflict.
begin;

create function public.eve_submit(
    queue text,
    payload jsonb default '{}',
    class text default 'default',
    work_id text default null,
    after text[] default null,
    priority_class integer default 2,
    not_before timestamptz default null,
    deadline timestamptz default null,
    minimum_completion_margin interval default null,
    value_until timestamptz default null,
    requested_at timestamptz default null,
    operation_identity text default null,
    effect_identity text default null,
    cancellation_identity text default null,
    dependency_revisions jsonb default null,
    replay_class text default null,
    completion_test text default null,
    expected_effects text[] default null,
    coalescing_key text default null,
    limit_key text default null,
    group_label text default null,
    after_ended text[] default null,
    decision bigint default null,
    under public.eve_lease default null,
    trace text default null,
    must_admit boolean default false,
    idempotency_key text default null
)
returns eve.admission_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
set plan_cache_mode to force_generic_plan
set enable_seqscan to off
set jit to off
set enable_bitmapscan to off
as $$
declare
    c eve.caller;
    answer eve.admission_answer;
    d eve.decided;
    a eve.asked;
    l eve.lineage;
    policy eve.policy;
    place eve.place;
    handed boolean := false;
    appended eve.appended;
    prior jsonb;
    at timestamptz;
    of_class integer;
    of record;
    worse text;
    derived text[] := '{}';
    edges integer := 0;
    named integer := 0;
    name text;
    taken boolean;
    fault text;
begin
    c := eve._enter(queue, case when under is null then '{producer,operator}'
        else '{worker,producer,operator}' end::text[]);
    if payload is null then
        perform eve._raise('22004', 'payload is null', '{"argument": "payload"}', 'Pass a JSON value, such as {}.');
    end if;
    if must_admit is null then
        perform eve._raise('22004', 'must_admit is null', '{"argument": "must_admit"}', 'Pass true or false.');
    end if;
    perform eve._check_text('work_id', eve_submit.work_id, 512, false);
    if eve_submit.work_id ^@ '~' then
        perform eve._raise('22023', 'work_id begins with "~"', '{"argument": "work_id"}',
            'Names that begin with "~" are given by the queue.');
    end if;
    if eve_submit.priority_class is null or eve_submit.priority_class not between 0 and 3 then
        perform eve._raise('22023', 'priority_class is not between 0 and 3', '{"argument": "priority_class"}',
            '0 is the most urgent, 2 the default.');
    end if;
    perform eve._check_instant('not_before', not_before);
    perform eve._check_instant('deadline', deadline);
    perform eve._check_instant('value_until', value_until);
    perform eve._check_instant('requested_at', requested_at);
    if minimum_completion_margin not between interval '0' and interval '100 years' then
        perform eve._raise('22023', 'minimum_completion_margin is not between 0 and 100 years',
            '{"argument": "minimum_completion_margin"}', 'Pass an interval from 0 on.');
    end if;
    perform eve._check_text('operation_identity', operation_identity, 512, false);
    perform eve._check_text('effect_identity', effect_identity, 1100, false);
    perform eve._check_text('cancellation_identity', cancellation_identity, 512, false);
    perform eve._check_text('coalescing_key', coalescing_key, 512, false);
    perform eve._check_text('limit_key', limit_key, 512, false);
    perform eve._check_text('group_label', group_label, 512, false);
    perform eve._check_text('trace', trace, 4096, false);
    if completion_test is not null and completion_test not in ('report', 'effects', 'review') then
        perform eve._raise('22023', 'completion_test is not report, effects or review',
            '{"argument": "completion_test"}', 'Use one of the three, or none for the class''s.');
    end if;
    if replay_class is not null
        and not exists (select from eve.replay_class as r where r.replay_class = eve_submit.replay_class) then
        perform eve._raise('22023', 'replay_class is not one of the five', '{"argument": "replay_class"}',
            'Use safe, destination_protected, reconcilable, non_repeatable or unknown.');
    end if;
    if pg_catalog.array_ndims(after) > 1 or pg_catalog.array_ndims(after_ended) > 1
        or pg_catalog.array_ndims(expected_effects) > 1
        or pg_catalog.cardinality(after) > 10000 or pg_catalog.cardinality(after_ended) > 10000
        or pg_catalog.cardinality(expected_effects) not between 1 and 1000 then
        perform eve._raise('22023', 'a list has more than one dimension, too many elements or expects no effect',
            '{"after": 10000, "expected_effects": 1000}', 'Pass a flat list within the limits of the detail.');
    end if;
    foreach name in array coalesce(after, '{}') || coalesce(after_ended, '{}') loop
        perform eve._check_text('after', name, 512, true);
    end loop;
    foreach name in array coalesce(expected_effects, '{}') loop
        perform eve._check_text('expected_effects', name, 1100, true);
    end loop;
    if idempotency_key is not null then
        prior := eve._request_open(c, idempotency_key, 'eve_submit', eve._fingerprint('eve_submit',
            eve._text(queue), eve._text(payload), eve._text(class), eve._text(eve_submit.work_id),
            eve._text(after), eve._text(after_ended), int4send(eve_submit.priority_class),
            timestamptz_send(not_before), timestamptz_send(deadline),
            interval_send(minimum_completion_margin), timestamptz_send(value_until),
            timestamptz_send(requested_at), eve._text(operation_identity), eve._text(effect_identity),
            eve._text(cancellation_identity), eve._text(dependency_revisions), eve._text(replay_class),
            eve._text(completion_test), eve._text(expected_effects), eve._text(coalescing_key),
            eve._text(limit_key), eve._text(group_label), int8send(decision), int8send((under).item),
            int8send((under).token), eve._text(trace), eve._text(must_admit)));
        if prior is not null then
            answer := jsonb_populate_record(null::eve.admission_answer, prior);
            answer.replayed := true;
            return answer;
        end if;
    end if;
    of_class := eve._class_id(c, class);
    select k.lane, k.revision, r.policy into of
    from eve.work_class as k
    join eve.class_revision as r
        on r.queue_id = k.queue_id and r.class_id = k.class_id and r.revision = k.revision
    where k.queue_id = c.queue_id and k.class_id = of_class;
    policy := of.policy;
    answer.revision := of.revision;
    if decision is not null
        and not exists (select from eve.decision as q
            where q.queue_id = c.queue_id and q.decision = eve_submit.decision) then
        perform eve._raise('P0002', format('unknown decision %s', decision),
            jsonb_build_object('decision', decision), 'Propose it with eve_propose first.');
    end if;
    at := eve._clock(c);
    l := eve._lineage(c, under);
    select r.replay_class into worse from eve.replay_class as r
    where r.replay_class in (eve_submit.replay_class, policy.replay_class)
    order by r.severity desc limit 1;
    if worse = 'destination_protected' and policy.protection is null then
        perform eve._raise('22023', 'the class states no protection by the destination',
            jsonb_build_object('argument', 'replay_class', 'class', class),
            'Give the class a protection with eve_define_class, or say reconcilable.');
    end if;
    minimum_completion_margin := greatest(minimum_completion_margin, policy.completion_margin);
    derived := array_remove(array[
        case when deadline is null and policy.life is not null then 'deadline' end,
        case when value_until is null and policy.value_window is not null then 'value_until' end,
        case when eve_submit.work_id is null then 'work_id' end,
        case when operation_identity is null then 'operation_identity' end,
        case when effect_identity is null then 'effect_identity' end,
        case when cancellation_identity is null then 'cancellation_identity' end,
        case when requested_at is null then 'requested_at' end,
        case when replay_class is null then 'replay_class' end,
        case when completion_test is null then 'completion_test' end], null);
    operation_identity := coalesce(operation_identity, class);
    a.class := class;
    a.class_id := of_class;
    a.revision := of.revision;
    a.policy := policy;
    a.at := at;
    a.work_id := eve_submit.work_id;
    a.operation_identity := operation_identity;
    a.effect_identity := coalesce(effect_identity, operation_identity || ':' || eve_submit.work_id);
    a.cancellation_identity := coalesce(cancellation_identity, eve_submit.work_id);
    a.coalescing_key := coalescing_key;
    a.limit_key := limit_key;
    a.payload := payload;
    a.size := octet_length(payload::text);
    a.digest := sha256(convert_to(payload::text, 'UTF8'));
    a.replay_class := worse;
    a.lineage_fault := l.fault;
    a.not_before := not_before;
    a.deadline := coalesce(deadline, coalesce(requested_at, at) + policy.life);
    a.margin := minimum_completion_margin;
    a.value_until := coalesce(value_until, coalesce(requested_at, at) + policy.value_window);
    a.awaited := decision;
    a.requested_at := coalesce(requested_at, at);
    a.derived := derived;
    a.effect_named := effect_identity is not null;
    a.expected_effects := expected_effects;
    a.completion_test := coalesce(completion_test, policy.completion_test);
    a.priority_class := eve_submit.priority_class::smallint;
    a.alone := after is null and after_ended is null and under is null and decision is null;
    d := eve._decide(c, a);
    answer.decision := d.decision;
    answer.reason := d.reason;
    answer.survivor := d.survivor;
    answer.replayed := false;
    if d.decision = 'ADMIT' then
        answer.item := coalesce(d.claimed, nextval('eve.item_seq'));
        answer.work_id := coalesce(eve_submit.work_id, '~' || answer.item);
        if policy.effect_unique then
            handed := d.replaces is not null and eve._hand_effect(c.queue_id, d.replaces, answer.item);
            if not handed then
                fault := eve._admit_effect(c,
                    coalesce(a.effect_identity, operation_identity || ':' || answer.work_id), answer.item);
            end if;
        end if;
    end if;
    if fault = 'effect_already_observed' then
        d.decision := 'REJECT';
        d.reason := fault;
        answer.decision := d.decision;
        answer.reason := d.reason;
        answer.item := null;
    elsif d.decision = 'ADMIT' then
        after := case when after is null and after_ended is null then null else coalesce(after, '{}') end;
        insert into eve.intent (
            queue_id, item, work_id, class_id, lane, payload, payload_size, payload_digest,
            operation_identity, effect_identity, cancellation_identity, requested_at, not_before,
            deadline, minimum_completion_margin, value_until, priority_class, dependency_revisions,
            replay_class, completion_test, expected_effects, coalescing_key, limit_key, group_label,
            parent, root, depth, effect_unique, coalesces, limited, edges, trace, derived, principal, submitted_at)
        values (
            c.queue_id, answer.item, answer.work_id, of_class, of.lane, payload, a.size, a.digest,
            operation_identity,
            coalesce(a.effect_identity, operation_identity || ':' || answer.work_id),
            coalesce(a.cancellation_identity, answer.work_id), coalesce(requested_at, at), not_before, a.deadline,
            a.margin, a.value_until, eve_submit.priority_class, dependency_revisions,
            worse, coalesce(completion_test, policy.completion_test), expected_effects,
            coalescing_key, limit_key, group_label, l.parent, l.root, l.depth, policy.effect_unique,
            d.claimed is not null, policy.limit_per_key is not null and eve_submit.limit_key is not null,
            coalesce(cardinality(after), 0) + coalesce(cardinality(after_ended), 0), trace,
            derived, c.principal, at)
        on conflict on constraint intent_work_id_is_unique do nothing;
        taken := not found;
        if taken then
            d.decision := 'REJECT';
            d.reason := 'work_id_taken';
            answer.decision := d.decision;
            answer.reason := d.reason;
            if handed then
                perform eve._hand_effect(c.queue_id, answer.item, d.replaces);
            elsif policy.effect_unique then
                perform eve._free_effect(c.queue_id, answer.item);
            end if;
            answer.item := null;
        elsif fault is not null then
            d.holds := d.holds || eve._hold_json(fault,
                coalesce(a.effect_identity, operation_identity || ':' || answer.work_id), null, null);
        end if;
    end if;
    if d.decision <> 'ADMIT' then
        if d.claimed is not null then
            perform eve._unclaim_key(c.queue_id, d.claimed, d.replaces);
        end if;
        answer.work_id := eve_submit.work_id;
        answer.evidence := eve._evidence(a, d, null);
        answer.wait_hint := case when answer.reason in ('item_budget_exhausted', 'byte_budget_exhausted',
            'age_budget_exceeded') then policy.wait_hint end;
        answer.submission := nextval('eve.submission_seq');
        if must_admit and d.decision <> 'COALESCE' then
            perform eve._refuse('not_admitted', c.queue, null, jsonb_build_object(
                'decision', answer.decision, 'reason', answer.reason, 'work_id', answer.work_id));
        end if;
        insert into eve.submission (
            queue_id, submission, at, actor, principal, class, revision, work_id, decision, reason,
            payload_size, payload_digest, evidence)
        values (
            c.queue_id, answer.submission, at, c.actor, c.principal, class, answer.revision,
            eve_submit.work_id, answer.decision, answer.reason, a.size, a.digest, answer.evidence);
        if d.survivor is not null then
            perform eve._append(c, d.survivor, 'absorbed', at, reason => 'equivalent_waiting',
                data => jsonb_build_object('represents', jsonb_strip_nulls(jsonb_build_object(
                    'submission', answer.submission, 'work_id', answer.work_id, 'rule', 'absorb',
                    'key', coalescing_key, 'size', a.size, 'digest', encode(a.digest, 'hex'),
                    'principal', c.principal))));
        end if;
    else
        if after is not null then
            edges := eve._store_edges(c, answer.item, answer.work_id, after, 'verified');
            if after_ended is not null then
                edges := edges + eve._store_edges(c, answer.item, answer.work_id,
                    (select array_agg(distinct e.id) from unnest(after_ended) as e (id) where e.id <> all (after)),
                    'ended');
            end if;
        end if;
        if eve_submit.work_id is not null then
            named := eve._name_known(c, answer.item, answer.work_id, at);
        end if;
        if edges > 0 then
            -- Nobody names a new item yet but those that waited for its name: only then can it close a cycle.
            d.holds := d.holds || eve._edge_holds(c, answer.item,
                named > 0 or answer.work_id = any (after) or coalesce(answer.work_id = any (after_ended), false));
        end if;
        if policy.limit_per_key is not null and eve_submit.limit_key is not null and d.holds = '[]' then
            d.holds := eve._limit_holds(c.queue_id, of_class, eve_submit.limit_key, at, true);
        end if;
        if jsonb_array_length(d.holds) > 0 then
            answer.decision := 'HOLD';
            answer.reason := d.holds -> 0 ->> 'reason';
            d.decision := 'HOLD';
            d.reason := answer.reason;
        end if;
        a.work_id := answer.work_id;
        a.effect_identity := coalesce(a.effect_identity, operation_identity || ':' || answer.work_id);
        answer.evidence := eve._evidence(a, d, d.holds);
        place := eve._inherited(c.queue_id, d.replaces, eve_submit.priority_class::smallint);
        appended := eve._append(c, answer.item,
            case answer.decision when 'HOLD' then 'held' else 'admitted' end, at,
            revision => answer.revision,
            rank => place.rank,
            due_at => case when answer.decision = 'ADMIT' then place.since end,
            reason => answer.reason,
            data => jsonb_strip_nulls(jsonb_build_object(
                'class', class, 'digest', encode(a.digest, 'hex'), 'size', a.size,
                -- What was consulted is kept; without, the envelope and the revision say it all.
                'evidence', case when d.decision = 'HOLD' or policy.evidence <> 'none' or not (d.spent is null)
                    then jsonb_strip_nulls(answer.evidence) - 'holds' end,
                'replaces', d.replaces,
                'holds', case when answer.decision = 'HOLD' then d.holds end)));
        if d.replaces is not null then
            perform eve._append(c, d.replaces, 'coalesced', at, reason => 'equivalent_waiting',
                data => jsonb_build_object('survivor', answer.item, 'rule', 'replace', 'key', coalescing_key));
        end if;
        if named > 0 and edges > 0 then
            perform eve._rederive_named(c, eve._cycle(c.queue_id, answer.item), at, 'dependency_known');
        end if;
        if a.deadline is not null then
            insert into eve.deadline (queue_id, at, item)
            values (c.queue_id, a.deadline, answer.item);
        end if;
        answer.phase := appended.phase;
        answer.version := appended.version;
    end if;
    if idempotency_key is not null then
        perform eve._request_close(c, idempotency_key, to_jsonb(answer));
    end if;
    return answer;
end
$$;

comment on function public.eve_submit(
    text, jsonb, text, text, text[], integer, timestamptz, timestamptz, interval, timestamptz,
    timestamptz, text, text, text, jsonb, text, text, text[], text, text, text, text[], bigint,
    public.eve_lease, text, boolean, text
) is
'Store one request and decide its admission, in the caller''s transaction: ADMIT, HOLD, REJECT, EXPIRE or COALESCE with a typed reason. Refuses unknown queues and classes (P0002), malformed arguments (22004, 22023), and with must_admit raises not_admitted instead of returning REJECT or EXPIRE.';

commit;
