-- api/return.sql · the holder gives its item back. Appends: returned. Raises: stale_fence, not_lease_holder, idempotency_conflict.
begin;

create function public.eve_return(
    queue text,
    item bigint,
    token bigint,
    reason text default 'returned',
    until timestamptz default null,
    decision bigint default null,
    after text[] default null,
    reconcile boolean default false,
    checkpoint jsonb default null,
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
    h eve.held;
    s eve.state;
    stored record;
    policy eve.policy;
    answer eve.finish_answer;
    appended eve.appended;
    prior jsonb;
    args jsonb;
    at timestamptz;
    phase text;
    holds jsonb := '[]';
    credit integer;
    name text;
begin
    c := eve._enter(queue, '{worker}');
    perform eve._check_text('reason', reason, 1000, true);
    perform eve._check_instant('until', until);
    perform eve._check_spend_amount(spend);
    if reconcile is null then
        perform eve._raise('22004', 'reconcile is null', '{"argument": "reconcile"}', 'Pass true or false.');
    end if;
    if cardinality(after) > 1000 or array_ndims(after) > 1 then
        perform eve._raise('22023', 'after is not a flat list of at most 1000', '{"argument": "after"}',
            'Name fewer items.');
    end if;
    foreach name in array coalesce(after, '{}') loop
        perform eve._check_text('after', name, 512, true);
    end loop;
    args := eve._strip(jsonb_build_object('reason', reason,
        'until_us', (extract(epoch from until) * 1000000)::bigint, 'decision', decision, 'after', after,
        'reconcile', reconcile, 'checkpoint', checkpoint, 'spend', spend));
    if idempotency_key is not null then
        prior := eve._request_open(c, idempotency_key, 'eve_return', eve._fingerprint('eve_return',
            eve._text(queue), int8send(item), int8send(token), eve._text(args)));
        if prior is not null then
            answer := jsonb_populate_record(null::eve.finish_answer, prior);
            answer.replayed := true;
            return answer;
        end if;
    end if;
    if decision is not null and not exists (
        select from eve.decision as d where d.queue_id = c.queue_id and d.decision = eve_return.decision) then
        perform eve._raise('P0002', format('unknown decision %s', decision),
            jsonb_build_object('decision', decision), 'Propose it with eve_propose first.');
    end if;
    h := eve._fence_take(c, item, token);
    if h.fault is not null then
        answer := eve._repeat_or_refuse(c, item, token, '{returned}', args, h.fault);
        if idempotency_key is not null then
            perform eve._request_close(c, idempotency_key, to_jsonb(answer));
        end if;
        return answer;
    end if;
    select x.queue_state as state, x.class_id into stored from eve.work_item as x
    where x.queue_id = c.queue_id and x.item = eve_return.item;
    s := stored.state;
    policy := eve._policy(c.queue_id, stored.class_id, s.revision);
    at := eve._clock(c);
    if reconcile or s.cancel_requested
        or s.effect_started and not eve._repeatable(c.queue_id, item, policy, s, at) then
        phase := 'uncertain';
    else
        if until > at then
            holds := holds || eve._hold_json('not_before', null, null, until);
        end if;
        if decision is not null and exists (
            select from eve.decision as d
            where d.queue_id = c.queue_id and d.decision = eve_return.decision and d.phase = 'open'
                and (d.expires_at > at) is not false) then
            -- What nobody answers in time is answered by the time.
            holds := holds || eve._hold_json('awaiting_decision', decision::text, null, (
                select d.expires_at from eve.decision as d
                where d.queue_id = c.queue_id and d.decision = eve_return.decision));
        end if;
        if after is not null then
            perform eve._store_edges(c, item, null,
                array(select u.id from unnest(after) as u (id) where not exists (
                    select from eve.dependency as d
                    where d.queue_id = c.queue_id and d.item = eve_return.item and d.on_work_id = u.id)),
                'verified');
            holds := holds || eve._edge_holds(c, item);
        end if;
        phase := case when jsonb_array_length(holds) > 0 then 'held' else 'ready' end;
        -- Before any effect start a return costs no attempt, as often as the budget is large.
        if not s.effect_started and s.credits < policy.attempts then
            credit := 1;
        end if;
    end if;
    perform eve._durable(c);
    appended := eve._append(c, item, 'returned', at,
        phase => phase, worker => h.worker, token => token, pool => h.pool, slot => h.number,
        attempts => credit, revision => s.revision, due_at => case when phase = 'held' then until end, reason => reason,
        data => eve._strip(jsonb_build_object(
            'args', args, 'checkpoint', checkpoint, 'spend', spend,
            'holds', case when phase = 'held' then holds end,
            'owner', case when phase = 'uncertain' then policy.retry_owner end,
            'lookup', case when phase = 'uncertain' then eve._lookup(policy) end)));
    perform eve._spend_row(c.queue_id, item, appended.version, spend);
    perform eve._put_slot(c.queue_id, h.pool, h.number);
    answer.item := item;
    answer.accepted := true;
    answer.phase := phase;
    answer.version := appended.version;
    answer.next_at := case when phase = 'held' then until end;
    answer.missing := '{}';
    answer.replayed := false;
    if idempotency_key is not null then
        perform eve._request_close(c, idempotency_key, to_jsonb(answer));
    end if;
    return answer;
end
$$;

comment on function public.eve_return(
    text, bigint, bigint, text, timestamptz, bigint, text[], boolean, jsonb, numeric, text
) is
'Give the caller''s item back: ready at once, or waiting for a time, a decision or other work_ids; with reconcile, or after an effect that may not be repeated, uncertain. Before any effect start it costs no attempt. Refuses a stale token, a lapsed lease and another holder.';

commit;
