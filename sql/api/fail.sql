-- api/fail.sql · the holder reports a failure. Appends: failed, released. Raises: stale_fence, not_lease_holder, idempotency_conflict.
begin;

create function public.eve_fail(
    queue text,
    item bigint,
    token bigint,
    error text default 'failed',
    disposition text default 'retry',
    detail jsonb default null,
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
    due timestamptz;
    phase text;
begin
    c := eve._enter(queue, '{worker}');
    if error is null or octet_length(error) not between 1 and 65536 then
        perform eve._raise('22023', 'error is null, empty or longer than 64 KiB', '{"argument": "error"}',
            'Pass a short text; longer evidence belongs into detail.');
    end if;
    if disposition is null or disposition not in ('retry', 'uncertain', 'dead') then
        perform eve._raise('22023', 'disposition is not retry, uncertain or dead', '{"argument": "disposition"}',
            'retry: try again; uncertain: an effect may have happened; dead: a human looks at it.');
    end if;
    perform eve._check_spend_amount(spend);
    args := eve._strip(jsonb_build_object(
        'error', error, 'disposition', disposition, 'detail', eve_fail.detail, 'spend', spend));
    if idempotency_key is not null then
        prior := eve._request_open(c, idempotency_key, 'eve_fail', eve._fingerprint('eve_fail',
            eve._text(queue), int8send(item), int8send(token), eve._text(args)));
        if prior is not null then
            answer := jsonb_populate_record(null::eve.finish_answer, prior);
            answer.replayed := true;
            return answer;
        end if;
    end if;
    h := eve._fence_take(c, item, token);
    if h.fault is not null then
        answer := eve._repeat_or_refuse(c, item, token, '{failed}', args, h.fault);
        if idempotency_key is not null then
            perform eve._request_close(c, idempotency_key, to_jsonb(answer));
        end if;
        return answer;
    end if;
    select x.queue_state as state, x.class_id into stored from eve.work_item as x
    where x.queue_id = c.queue_id and x.item = eve_fail.item;
    s := stored.state;
    policy := eve._policy(c.queue_id, stored.class_id, s.revision);
    at := eve._clock(c);
    phase := case
        when disposition = 'uncertain' then 'uncertain'
        when s.effect_started and not eve._repeatable(c.queue_id, item, policy, s, at) then 'uncertain'
        when s.cancel_requested then 'uncertain'
        when disposition = 'dead' then 'quarantined'
        when s.attempts >= eve._budget(policy, s) then 'quarantined'
        else 'held' end;
    if phase = 'held' then
        due := at + eve._backoff(policy, s.attempts);
    end if;
    perform eve._durable(c);
    appended := eve._append(c, item, 'failed', at,
        phase => phase, worker => h.worker, token => token, pool => h.pool, slot => h.number,
        due_at => due, revision => s.revision, reason => left(error, 1000),
        data => eve._strip(jsonb_build_object(
            'args', args,
            'spend', spend,
            'answered', case when due <= at then 'ready' end,
            'holds', case when phase = 'held'
                then jsonb_build_array(eve._hold_json('retry_backoff', null, policy.retry_owner, due)) end,
            'owner', case when phase = 'uncertain' then policy.retry_owner end,
            'lookup', case when phase = 'uncertain' then eve._lookup(policy) end,
            'quarantine', case when phase = 'quarantined' then eve._quarantine_record(c, item, s,
                case when disposition = 'dead' then left(error, 1000) else 'max attempts exceeded' end, at)
                || jsonb_build_object('last_error', left(error, 1000)) end)));
    perform eve._spend_row(c.queue_id, item, appended.version, spend);
    answer.item := item;
    answer.accepted := true;
    answer.phase := phase;
    answer.version := appended.version;
    answer.next_at := due;
    answer.missing := '{}';
    answer.replayed := false;
    if phase = 'held' and due <= at then
        appended := eve._settle_holds(c, item, at, '[]', 'retry_backoff', null, ticket => true);
        answer.phase := appended.phase;
    end if;
    perform eve._put_slot(c.queue_id, h.pool, h.number);
    if idempotency_key is not null then
        perform eve._request_close(c, idempotency_key, to_jsonb(answer));
    end if;
    return answer;
end
$$;

comment on function public.eve_fail(text, bigint, bigint, text, text, jsonb, numeric, text) is
'Report a failure of the caller''s item: retried after a back-off while its budget lasts, uncertain when an effect may have happened, else quarantined with a record. Refuses a stale token, a lapsed lease and another holder.';

commit;
