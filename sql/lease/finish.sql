-- lease/finish.sql · what completing, failing and returning an item mean. Appends: completed, reported, failed, returned.
begin;

create function eve._complete_args(result jsonb, evidence jsonb, spend numeric default null)
returns jsonb
language plpgsql
stable
as $$
begin
    if result is null and evidence is null and spend is null then
        return null;
    end if;
    return eve._strip(pg_catalog.jsonb_build_object(
        'result_sha256', pg_catalog.encode(
            pg_catalog.sha256(pg_catalog.convert_to(result::text, 'UTF8')), 'hex'),
        'evidence', evidence, 'spend', spend));
end
$$;

comment on function eve._complete_args(jsonb, jsonb, numeric) is
'What a completion was asked with, as its event keeps it: the digest of the result, the evidence, what was spent.';

create function eve._evidence_missing(queue_id bigint, item bigint, kinds text[], more jsonb)
returns text[]
language plpgsql
stable
as $$
begin
    if kinds is null then
        return '{}';
    end if;
    return array(
        select k.kind from pg_catalog.unnest(kinds) as k (kind)
        where not coalesce(more @> pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object('kind', k.kind)), false)
            and not exists (
                select from eve.ledger as l
                where l.queue_id = _evidence_missing.queue_id and l.item = _evidence_missing.item
                    and l.kind in ('effect_started', 'effect_observed', 'reported', 'completed', 'reconciled',
                        'verified')
                    and coalesce(l.data -> 'evidence', l.data -> 'args' -> 'evidence')
                        @> pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object('kind', k.kind)))
        order by k.kind);
end
$$;

comment on function eve._evidence_missing(bigint, bigint, text[], jsonb) is
'The kinds of evidence that a class requires and that neither the events of an item nor this call give.';

create function eve._completion_record(
    operation text,
    principal text,
    worker text,
    token bigint,
    attempt integer,
    has_result boolean,
    external text[],
    observed text[],
    test text,
    revision integer,
    scope text
)
returns jsonb
language plpgsql
stable
as $$
begin
    return pg_catalog.jsonb_build_object(
        'operation', operation,
        'execution', pg_catalog.jsonb_build_object(
            'principal', principal, 'worker', worker, 'token', token, 'attempt', attempt),
        'durable', case when has_result then '["event", "result"]'::jsonb else '["event"]' end,
        'external', coalesce(external, '{}'),
        'observed', observed,
        'test', test,
        'revision', revision,
        'scope', scope,
        'unresolved', array(
            select u.effect from pg_catalog.unnest(external) as u (effect)
            where u.effect <> all (observed) order by u.effect),
        'not_proven', '["later durability", "recipient understanding", "legal sufficiency",'
            ' "absence of unobserved side effects"]'::jsonb);
end
$$;

comment on function eve._completion_record(
    text, text, text, bigint, integer, boolean, text[], text[], text, integer, text
) is
'What a completion preserves: operation, execution, expected durable and external effects, those observed, the test with its revision, the scope of the observation (its time is the event''s), what stays unresolved, and what it does not prove.';

create function eve._completion_of(
    c eve.caller,
    item bigint,
    state eve.state,
    test text,
    found_now text[],
    scope text
)
returns jsonb
language plpgsql
stable
as $$
declare
    k record;
begin
    select i.operation_identity, i.expected_effects, i.effect_identity, l.principal, l.worker, l.token,
        exists (select from eve.result as r where r.queue_id = i.queue_id and r.item = i.item) as has_result
    into k
    from eve.intent as i
    left join lateral (
        select a.principal, a.worker, a.token from eve.ledger as a
        where a.queue_id = i.queue_id and a.item = i.item and a.kind = 'acquired'
        order by a.version desc limit 1
    ) as l on true
    where i.queue_id = c.queue_id and i.item = _completion_of.item;
    return eve._completion_record(k.operation_identity, k.principal, k.worker, k.token, state.attempts, k.has_result,
        coalesce(k.expected_effects, case when test <> 'report' then array[k.effect_identity] end),
        array(
            select e.effect_identity from eve.effect as e
            where e.queue_id = c.queue_id and e.item = _completion_of.item and e.kind = 'observed'
            union
            select f.effect from pg_catalog.unnest(found_now) as f (effect)
            order by 1),
        test, state.revision, scope);
end
$$;

comment on function eve._completion_of(eve.caller, bigint, eve.state, text, text[], text) is
'The completion record of an item whose lease has ended: the execution is that of its last lease.';

create function eve._test_of(completion_test text, policy eve.policy)
returns text
language sql
immutable
return case
    when 'review' in (_test_of.completion_test, (policy).completion_test) then 'review'
    when 'effects' in (_test_of.completion_test, (policy).completion_test) then 'effects'
    else 'report' end;

comment on function eve._test_of(text, eve.policy) is
'The completion test of an item: of what was asked at its submission and what its class says the stricter.';

create function eve._finished_before(c eve.caller, item bigint, token bigint, kinds text[], args jsonb)
returns eve.finish_answer
language plpgsql
stable
as $$
declare
    last record;
    answer eve.finish_answer;
begin
    select l.version, l.kind, l.phase, l.principal, l.due_at, l.data into last
    from eve.ledger as l
    where l.queue_id = c.queue_id and l.item = _finished_before.item and l.token = _finished_before.token
        and l.kind in ('completed', 'reported', 'failed', 'returned')
    order by l.version desc limit 1;
    if not found or last.principal <> c.principal then
        return null;
    end if;
    answer.item := item;
    answer.replayed := false;
    if last.kind <> all (kinds) or (last.data -> 'args') is distinct from args then
        answer.accepted := false;
        answer.refusal := 'idempotency_conflict';
        answer.phase := last.phase;
        answer.version := last.version;
        answer.detail := pg_catalog.jsonb_build_object('finished_as', last.kind, 'version', last.version);
        return answer;
    end if;
    answer.accepted := true;
    answer.phase := coalesce(last.data ->> 'answered', last.phase);
    answer.version := last.version;
    answer.next_at := last.due_at;
    answer.missing := array(select pg_catalog.jsonb_array_elements_text(last.data -> 'missing'));
    answer.detail := nullif(pg_catalog.jsonb_build_object('missing_evidence', last.data -> 'missing_evidence'),
        '{"missing_evidence": null}');
    answer.replayed := true;
    return answer;
end
$$;

comment on function eve._finished_before(eve.caller, bigint, bigint, text[], jsonb) is
'The first answer of a finish that is repeated with the same token and arguments, or null when it did not finish the item; for other arguments an answer that says idempotency_conflict.';

create function eve._repeat_or_refuse(c eve.caller, item bigint, token bigint, kinds text[], args jsonb, fault text)
returns eve.finish_answer
language plpgsql
stable
as $$
declare
    answer eve.finish_answer := eve._finished_before(c, item, token, kinds, args);
begin
    if answer.item is null or answer.refusal is not null then
        perform eve._refuse(coalesce(answer.refusal, fault), c.queue, item,
            coalesce(answer.detail, '{}') || pg_catalog.jsonb_build_object('token', token));
    end if;
    return answer;
end
$$;

comment on function eve._repeat_or_refuse(eve.caller, bigint, bigint, text[], jsonb, text) is
'Give the first answer of a repeated finish again, or raise the fault of its lease.';

create function eve._fault_answer(c eve.caller, item bigint, token bigint, fault text)
returns eve.finish_answer
language plpgsql
stable
as $$
declare
    answer eve.finish_answer;
begin
    answer.item := item;
    answer.accepted := false;
    answer.refusal := fault;
    select pg_catalog.jsonb_build_object('phase', (w.queue_state).phase, 'token', token,
        'next', eve._next(fault, c.queue, _fault_answer.item))
    into answer.detail
    from eve.work_item as w
    where w.queue_id = c.queue_id and w.item = _fault_answer.item;
    answer.replayed := false;
    return answer;
end
$$;

comment on function eve._fault_answer(eve.caller, bigint, bigint, text) is
'A refused holder write as a row, for the verbs that answer element by element.';

create function eve._complete_held(
    c eve.caller,
    h eve.held,
    result jsonb,
    evidence jsonb,
    spend numeric default null
)
returns eve.finish_answer
language plpgsql
as $$
declare
    answer eve.finish_answer;
    appended eve.appended;
    at timestamptz := eve._clock(c);
    k record;
    policy eve.policy;
    test text;
    kind text := 'completed';
    phase text;
    args jsonb := eve._complete_args(result, evidence, spend);
    observed text[];
    kinds text[];
begin
    select
        (w.queue_state).revision as admitted, (w.queue_state).attempts, w.class_id, i.completion_test,
        i.expected_effects, i.effect_identity, i.operation_identity, wc.revision, r.policy
    into k
    from eve.work_item as w
    join eve.intent as i on i.queue_id = w.queue_id and i.item = w.item
    join eve.work_class as wc on wc.queue_id = w.queue_id and wc.class_id = w.class_id
    join eve.class_revision as r
        on r.queue_id = wc.queue_id and r.class_id = wc.class_id and r.revision = wc.revision
    where w.queue_id = c.queue_id and w.item = h.item;
    policy := k.policy;
    if k.admitted <> k.revision then
        policy := eve._policy(c.queue_id, k.class_id, k.admitted);
    end if;
    if pg_catalog.octet_length(result::text) > policy.result_limit then
        perform eve._raise('22023', 'result is larger than the class allows',
            pg_catalog.jsonb_build_object('bytes', pg_catalog.octet_length(result::text),
                'limit', policy.result_limit, 'item', h.item),
            'Store it elsewhere and pass a reference, or raise result_limit.');
    end if;
    test := eve._test_of(k.completion_test, policy);
    observed := array(
        select distinct e.effect_identity from eve.effect as e
        where e.queue_id = c.queue_id and e.item = h.item and e.kind = 'observed' order by 1);
    if test = 'effects' then
        answer.missing := array(
            select u.effect from pg_catalog.unnest(coalesce(k.expected_effects, array[k.effect_identity])) as u (effect)
            where u.effect <> all (observed) order by u.effect);
        if answer.missing <> '{}' then
            kind := 'reported';
        end if;
    end if;
    kinds := eve._evidence_missing(c.queue_id, h.item, policy.evidence_kinds, evidence);
    -- The engine judges nothing for which the evidence is not there: then a verifier does.
    phase := case when kind = 'reported' then 'reported'
        when test <> 'review' and policy.engine_verifies and kinds = '{}' then 'verified' else 'completed' end;
    appended := eve._append(c, h.item, kind, at,
        phase => phase, worker => h.worker, token => h.token, pool => h.pool, slot => h.number,
        revision => k.revision,
        data => eve._strip(pg_catalog.jsonb_build_object(
            'args', args,
            'spend', spend,
            'missing', case when kind = 'reported' then pg_catalog.to_jsonb(answer.missing) end,
            'missing_evidence', case when kinds <> '{}' then pg_catalog.to_jsonb(kinds) end,
            'record', case when kind = 'completed' then eve._completion_record(
                k.operation_identity, h.principal, h.worker, h.token, k.attempts, result is not null,
                coalesce(k.expected_effects, case when test <> 'report' then array[k.effect_identity] end),
                observed, test, k.revision, case test
                    when 'effects' then 'the effects of this item that were recorded as observed'
                    else 'the report of the holder under its lease' end) end)));
    if spend is not null then
        perform eve._spend_row(c.queue_id, h.item, appended.version, spend);
    end if;
    if result is not null then
        insert into eve.result (queue_id, item, version, result)
        values (c.queue_id, h.item, appended.version, _complete_held.result);
    end if;
    if phase = 'verified' then
        perform eve._close_edges(c, h.item, phase, at);
    end if;
    answer.item := h.item;
    answer.accepted := true;
    answer.phase := phase;
    answer.version := appended.version;
    answer.missing := coalesce(answer.missing, '{}');
    if kinds <> '{}' then
        answer.detail := pg_catalog.jsonb_build_object('missing_evidence', kinds);
    end if;
    answer.replayed := false;
    return answer;
end
$$;

comment on function eve._complete_held(eve.caller, eve.held, jsonb, jsonb, numeric) is
'Complete an item whose lease row the caller has taken: verified, completed or reported, by the completion test of its class. The slot stays with the caller.';

create function eve._complete_one(
    c eve.caller,
    item bigint,
    token bigint,
    result jsonb,
    evidence jsonb,
    spend numeric default null
)
returns eve.finish_answer
language plpgsql
as $$
declare
    h eve.held := eve._fence_take(c, item, token);
    answer eve.finish_answer;
begin
    if h.fault is not null then
        return eve._repeat_or_refuse(c, item, token, '{completed,reported}',
            eve._complete_args(result, evidence, spend), h.fault);
    end if;
    answer := eve._complete_held(c, h, result, evidence, spend);
    perform eve._put_slot(c.queue_id, h.pool, h.number);
    return answer;
end
$$;

comment on function eve._complete_one(eve.caller, bigint, bigint, jsonb, jsonb, numeric) is
'Complete one item for its holder, or give the first answer again. Raises stale_fence, not_lease_holder, idempotency_conflict.';

create function eve._complete_many(
    c eve.caller,
    items bigint[],
    tokens bigint[],
    results jsonb[],
    all_or_nothing boolean,
    out answers eve.finish_answer[],
    out handed eve.held[]
)
returns record
language plpgsql
as $$
declare
    h eve.held;
    answer eve.finish_answer;
    place integer;
    places integer[];
begin
    -- Lists that begin at another place than 1, or have two dimensions, are of other text than flat ones.
    if pg_catalog.cardinality(items) is distinct from pg_catalog.cardinality(tokens)
        or results is not null and pg_catalog.cardinality(results) <> pg_catalog.cardinality(items)
        or (pg_catalog.array_dims(items) = pg_catalog.array_dims(tokens)) is false
        or (pg_catalog.array_dims(results) = pg_catalog.array_dims(items)) is false
        or pg_catalog.array_ndims(items) > 1 or pg_catalog.array_lower(items, 1) <> 1 then
        perform eve._raise('22023', 'items, tokens and results are not flat lists of one length', null,
            'Pass one token, and one result or no results, for each item.');
    end if;
    if pg_catalog.cardinality(items) > 1000 then
        perform eve._raise('22023', 'more than 1000 elements', '{"argument": "items"}', 'Split the batch.');
    end if;
    places := array[1];
    if pg_catalog.cardinality(items) <> 1 then
        -- Lock in item order, whatever the order asked for: batches do not deadlock.
        perform from eve.held_slot as k
        join unnest(items, tokens) as u (item, token) on u.item = k.item and u.token = k.token
        where k.queue_id = c.queue_id
        order by k.item, k.token
        for update of k;
        perform eve._lock_children(c, items, true);
        places := array(
            select u.place::integer
            from pg_catalog.unnest(items) with ordinality as u (item, place) order by u.item, u.place);
    end if;
    answers := pg_catalog.array_fill(null::eve.finish_answer, array[pg_catalog.cardinality(items)]);
    handed := '{}';
    foreach place in array places loop
        if items[place] is null then
            perform eve._raise('22004', 'an item is null', '{"argument": "items"}', 'Pass item numbers.');
        end if;
        answer := null;
        h := eve._fence_take(c, items[place], tokens[place]);
        if h.fault is null then
            answers[place] := eve._complete_held(c, h, results[place], null);
            handed := handed || h;
            continue;
        end if;
        if h.fault = 'unknown_item' then
            if all_or_nothing then
                perform eve._refuse(h.fault, c.queue, items[place]);
            end if;
            answer.item := items[place];
            answer.accepted := false;
            answer.refusal := 'stale_fence';
            answer.detail := '{"unknown": true}';
            answer.replayed := false;
            answers[place] := answer;
            continue;
        end if;
        answer := eve._finished_before(c, items[place], tokens[place], '{completed,reported}',
            eve._complete_args(results[place], null));
        if answer.item is null then
            answer := eve._fault_answer(c, items[place], tokens[place], h.fault);
        end if;
        if all_or_nothing and answer.refusal is not null then
            perform eve._refuse(answer.refusal, c.queue, items[place],
                coalesce(answer.detail, '{}') || pg_catalog.jsonb_build_object('token', tokens[place]));
        end if;
        answers[place] := answer;
    end loop;
end
$$;

comment on function eve._complete_many(eve.caller, bigint[], bigint[], jsonb[], boolean) is
'Complete several items in item order, one answer an element; the slots of those that ended are handed to the caller.';

commit;
