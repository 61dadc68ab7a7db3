-- api/renew.sql · extend a lease, and leave progress and checkpoint. Appends: renewed. Raises: stale_fence, not_lease_holder, lease_age_exceeded.
begin;

create function public.eve_renew(
    queue text,
    item bigint,
    token bigint,
    ttl interval default null,
    progress jsonb default null,
    checkpoint jsonb default null,
    spend numeric default null,
    idempotency_key text default null
)
returns eve.lease_answer
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
    answer eve.lease_answer;
    appended eve.appended;
    prior jsonb;
    at timestamptz;
    latest timestamptz;
    due timestamptz;
    over jsonb;
begin
    c := eve._enter(queue, '{worker}');
    perform eve._check_spend_amount(spend);
    if idempotency_key is not null then
        prior := eve._request_open(c, idempotency_key, 'eve_renew', eve._fingerprint('eve_renew',
            eve._text(queue), int8send(item), int8send(token), interval_send(ttl),
            eve._text(progress), eve._text(checkpoint), eve._text(spend)));
        if prior is not null then
            answer := jsonb_populate_record(null::eve.lease_answer, prior);
            answer.replayed := true;
            return answer;
        end if;
    end if;
    h := eve._fence_write(c, item, token);
    if h.fault is not null then
        perform eve._refuse(h.fault, c.queue, item, jsonb_build_object('token', token));
    end if;
    select x.queue_state as state, x.class_id into stored from eve.work_item as x
    where x.queue_id = c.queue_id and x.item = eve_renew.item;
    s := stored.state;
    policy := eve._policy(c.queue_id, stored.class_id, s.revision);
    at := greatest(eve._clock(c), s.at);
    latest := h.acquired_at + policy.max_age;
    if ttl is not null then
        if not isfinite(ttl) or ttl <= interval '0' then
            perform eve._raise('22023', 'ttl is not positive and finite', '{"argument": "ttl"}',
                'Pass a positive interval, or none for what is left.');
        end if;
        if ttl > latest - at then
            perform eve._refuse('lease_age_exceeded', c.queue, item, jsonb_build_object(
                'token', token, 'seconds_left', greatest(0, extract(epoch from latest - at))));
        end if;
        due := at + least(ttl, policy.ttl_ceiling);
    else
        due := least(at + policy.ttl, latest);
    end if;
    answer.clamped := due >= latest or coalesce(ttl > policy.ttl_ceiling, false);
    due := greatest(due, s.expires_at);
    perform eve._durable(c);
    appended := eve._append(c, item, 'renewed', at,
        worker => h.worker, token => token, due_at => due, pool => h.pool, slot => h.number,
        revision => s.revision,
        data => nullif(eve._strip(jsonb_build_object(
            'progress', progress, 'checkpoint', checkpoint, 'spend', spend)), '{}'));
    perform eve._spend_row(c.queue_id, item, appended.version, spend);
    over := eve._over_spend(c.queue_id, item, policy);
    answer.item := item;
    answer.token := token;
    answer.expires_at := due;
    answer.cancel_requested := s.cancel_requested;
    answer.detail := jsonb_build_object('version', appended.version);
    if over is not null then
        answer.detail := answer.detail || (over - 'grant') || '{"wrap_up": true}';
    end if;
    answer.replayed := false;
    if idempotency_key is not null then
        perform eve._request_close(c, idempotency_key, to_jsonb(answer));
    end if;
    return answer;
end
$$;

comment on function public.eve_renew(text, bigint, bigint, interval, jsonb, jsonb, numeric, text) is
'Extend the caller''s live lease, never past its maximum age and never shorter than it is; progress and checkpoint travel with it and the checkpoint reaches the next holder; spend is what was spent since the last report, in the unit of the class, and over its limit the detail says wrap_up: no later acquisition goes through until a human grants more. Refuses a stale token, a lapsed lease, another holder, and a ttl beyond the maximum age.';

commit;
