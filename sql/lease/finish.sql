-- lease/finish.sql · what completing, failing and returning an item mean. Appends: completed, reported, failed, returned.
begin;

create function eve._complete_args(result jsonb, evidence jsonb)
returns jsonb
language plpgsql
stable
as $$
begin
    if result is null and evidence is null then
        return null;
    end if;
    return eve._strip(pg_catalog.jsonb_build_object(
        'result_sha256', pg_catalog.encode(
            pg_catalog.sha256(pg_catalog.convert_to(result::text, 'UTF8')), 'hex'),
        'evidence', evidence));
end
$$;

comment on function eve._complete_args(jsonb, jsonb) is
'What a completion was asked with, as its event keeps it: the digest of the result, and the evidence.';

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

create function eve._complete_held(c eve.caller, h eve.held, result jsonb, evidence jsonb)
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
    args jsonb := eve._complete_args(result, evidence);
    observed text[];
begin
    select
        (w.queue_state).revision as admitted, w.class_id, i.completion_test, i.expected_effects, i.effect_identity,
        wc.revision, r.policy
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
    test := case
        when 'review' in (k.completion_test, policy.completion_test) then 'review'
        when 'effects' in (k.completion_test, policy.completion_test) then 'effects'
        else 'report' end;
    if test = 'effects' then
        observed := array(
            select distinct e.effect_identity from eve.effect as e
            where e.queue_id = c.queue_id and e.item = h.item and e.kind = 'observed');
        answer.missing := array(
            select u.effect from pg_catalog.unnest(coalesce(k.expected_effects, array[k.effect_identity])) as u (effect)
            where u.effect <> all (observed) order by u.effect);
        if answer.missing <> '{}' then
            kind := 'reported';
        end if;
    end if;
    phase := case when kind = 'reported' then 'reported'
        when test <> 'review' and policy.engine_verifies then 'verified' else 'completed' end;
    appended := eve._append(c, h.item, kind, at,
        phase => phase, worker => h.worker, token => h.token, pool => h.pool, slot => h.number,
        revision => k.revision,
        data => case when args is not null or test <> 'report' then eve._strip(
            pg_catalog.jsonb_build_object(
                'args', args,
                'test', nullif(test, 'report'),
                'observed', case when test = 'effects' then pg_catalog.to_jsonb(observed) end,
                'missing', case when kind = 'reported' then pg_catalog.to_jsonb(answer.missing) end)) end);
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
    answer.replayed := false;
    return answer;
end
$$;

comment on function eve._complete_held(eve.caller, eve.held, jsonb, jsonb) is
'Complete an item whose lease row the caller has taken: verified, completed or reported, by the completion test of its class. The slot stays with the caller.';

create function eve._complete_one(c eve.caller, item bigint, token bigint, result jsonb, evidence jsonb)
returns eve.finish_answer
language plpgsql
as $$
declare
    h eve.held := eve._fence_take(c, item, token);
    answer eve.finish_answer;
begin
    if h.fault is not null then
        return eve._repeat_or_refuse(c, item, token, '{completed,reported}',
            eve._complete_args(result, evidence), h.fault);
    end if;
    answer := eve._complete_held(c, h, result, evidence);
    perform eve._put_slot(c.queue_id, h.pool, h.number);
    return answer;
end
$$;

comment on function eve._complete_one(eve.caller, bigint, bigint, jsonb, jsonb) is
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
