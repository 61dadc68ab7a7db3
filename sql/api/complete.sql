-- api/complete.sql · the holder completes its item, or several. Appends: completed, reported. Raises: stale_fence, not_lease_holder, idempotency_conflict.
begin;

create function public.eve_complete(
    queue text,
    item bigint,
    token bigint,
    result jsonb default null,
    evidence jsonb default null,
    spend numeric default null,
    idempotency_key text default null
)
returns eve.finish_answer
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
    answer eve.finish_answer;
    prior jsonb;
begin
    c := eve._enter(queue, '{worker}');
    evidence := eve._check_evidence(evidence);
    perform eve._check_spend_amount(spend);
    if idempotency_key is not null then
        prior := eve._request_open(c, idempotency_key, 'eve_complete', eve._fingerprint('eve_complete',
            eve._text(queue), int8send(item), int8send(token), eve._text(result), eve._text(evidence),
            eve._text(spend)));
        if prior is not null then
            answer := jsonb_populate_record(null::eve.finish_answer, prior);
            answer.replayed := true;
            return answer;
        end if;
    end if;
    perform eve._durable(c);
    answer := eve._complete_one(c, item, token, result, evidence, spend);
    if idempotency_key is not null then
        perform eve._request_close(c, idempotency_key, to_jsonb(answer));
    end if;
    return answer;
end
$$;

comment on function public.eve_complete(text, bigint, bigint, jsonb, jsonb, numeric, text) is
'Complete the caller''s item under its token: verified, completed or reported, as the completion test of its class says; the lease ends. Where the class requires kinds of evidence that are not there the engine does not verify: it is completed, awaits a verifier, and the detail names them. The same call repeated gives the first answer. Refuses a stale token, a lapsed lease, another holder, and a second completion with other arguments.';

create function public.eve_complete_batch(
    queue text,
    items bigint[],
    tokens bigint[],
    results jsonb[] default null,
    all_or_nothing boolean default false,
    idempotency_key text default null
)
returns setof eve.finish_answer
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
    answers eve.finish_answer[];
    answer eve.finish_answer;
    handed eve.held[];
    h eve.held;
    prior jsonb;
begin
    c := eve._enter(queue, '{worker}');
    if items is null or tokens is null or all_or_nothing is null then
        perform eve._raise('22004', 'items, tokens or all_or_nothing is null', null, 'Pass arrays of equal length.');
    end if;
    if idempotency_key is not null then
        prior := eve._request_open(c, idempotency_key, 'eve_complete_batch', eve._fingerprint(
            'eve_complete_batch', eve._text(queue), eve._text(items), eve._text(tokens),
            eve._text(results), eve._text(all_or_nothing)));
        if prior is not null then
            for answer in
                select (jsonb_populate_record(null::eve.finish_answer, a.value)).*
                from jsonb_array_elements(prior) as a (value)
            loop
                answer.replayed := true;
                return next answer;
            end loop;
            return;
        end if;
    end if;
    perform eve._durable(c);
    select m.answers, m.handed into answers, handed
    from eve._complete_many(c, items, tokens, results, all_or_nothing) as m;
    foreach h in array handed loop
        perform eve._put_slot(c.queue_id, h.pool, h.number);
    end loop;
    if idempotency_key is not null then
        perform eve._request_close(c, idempotency_key, to_jsonb(answers));
    end if;
    return query select * from unnest(answers);
end
$$;

comment on function public.eve_complete_batch(text, bigint[], bigint[], jsonb[], boolean, text) is
'Complete several items of the caller, one row an element in the order given; a refused element spoils no other; a malformed one, such as a result beyond the class''s limit, is an error of the whole call. With all_or_nothing the first refusal is raised and nothing is completed.';

commit;
