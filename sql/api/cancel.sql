-- api/cancel.sql · nobody wants the result any more. Appends: cancelled, cancel_requested. Answers done = false where nothing changes.
begin;

create function eve._cancel_one(c eve.caller, item bigint, reason text)
returns eve.act_answer
language plpgsql
as $$
declare
    a eve.acting := eve._act_on(c, item);
    policy eve.policy;
    appended eve.appended;
    at timestamptz := eve._clock(c);
begin
    if (a.state).phase = 'leased' then
        policy := eve._policy(c.queue_id, a.class_id, (a.state).revision);
        if policy.cancel_boundary = 'effect_start' and (a.state).effect_started then
            if (a.state).cancel_requested then
                return eve._acted(item, null, pg_catalog.jsonb_build_object('phase', 'leased', 'requested', true));
            end if;
            appended := eve._append(c, item, 'cancel_requested', at, token => (a.state).token, reason => reason);
            return eve._acted(item, appended, '{"boundary": "effect_start", "requested": true}');
        end if;
        perform eve._end_lease(c, a);
    elsif (a.state).phase in ('uncertain', 'reported') and not (a.state).cancel_requested then
        appended := eve._append(c, item, 'cancel_requested', at, reason => reason);
        return eve._acted(item, appended, '{"requested": true}');
    elsif (a.state).phase not in ('held', 'ready') then
        return eve._acted(item, null, pg_catalog.jsonb_build_object('phase', (a.state).phase));
    end if;
    appended := eve._append(c, item, 'cancelled', at, reason => reason, revision => (a.state).revision);
    perform eve._close_edges(c, item, 'cancelled', at);
    return eve._acted(item, appended);
end
$$;

comment on function eve._cancel_one(eve.caller, bigint, text) is
'Cancel one item: at once while it waits, by superseding the token while leased, only requested after an effect started under boundary effect_start.';

create function public.eve_cancel(
    queue text,
    item bigint default null,
    work_id text default null,
    cancellation_identity text default null,
    reason text default 'cancelled',
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    answer eve.act_answer;
    one eve.act_answer;
    target record;
    any_owner boolean;
    count integer := 0;
begin
    c := eve._enter(queue, '{producer,operator,human}');
    perform eve._check_text('reason', reason, 1000, true);
    perform eve._check_text('cancellation_identity', eve_cancel.cancellation_identity, 512, false);
    if num_nonnulls(item, eve_cancel.work_id, eve_cancel.cancellation_identity) <> 1 then
        perform eve._raise('22023', 'not exactly one of item, work_id and cancellation_identity is given', null,
            'Name one item, or one cancellation identity.');
    end if;
    answer := eve._act_replay(c, idempotency_key, 'eve_cancel', eve._fingerprint('eve_cancel',
        eve._text(queue), int8send(item), eve._text(eve_cancel.work_id),
        eve._text(eve_cancel.cancellation_identity), eve._text(reason)));
    if answer.done is not null then
        return answer;
    end if;
    perform eve._durable(c);
    any_owner := eve._has(c, 'operator') or eve._has(c, 'human');
    answer := eve._acted(item, null, '{}');
    if eve_cancel.cancellation_identity is not null then
        insert into eve.cancellation (queue_id, cancellation_identity, submitter, at, principal, reason)
        values (c.queue_id, eve_cancel.cancellation_identity, case when any_owner then '' else c.principal end,
            eve._clock(c), c.principal, eve_cancel.reason)
        on conflict on constraint cancellation_pkey do nothing;
        answer.done := found;
    end if;
    for target in
        select i.item from (
            select x.item, x.principal from eve.intent as x
            where x.queue_id = c.queue_id and x.item = eve_cancel.item
            union all
            select x.item, x.principal from eve.intent as x
            where x.queue_id = c.queue_id and x.work_id = eve_cancel.work_id
            union all
            -- Most identities are the work_id and found by it; the index has the others.
            select x.item, x.principal from eve.intent as x
            where x.queue_id = c.queue_id and x.work_id = eve_cancel.cancellation_identity
                and x.cancellation_identity = x.work_id
            union all
            select x.item, x.principal from eve.intent as x
            where x.queue_id = c.queue_id and x.cancellation_identity = eve_cancel.cancellation_identity
                and x.cancellation_identity <> x.work_id
        ) as i
        where any_owner or i.principal = c.principal
        order by i.item
    loop
        one := eve._cancel_one(c, target.item, reason);
        count := count + one.done::integer;
        if eve_cancel.cancellation_identity is null then
            answer := one;
        else
            answer.done := answer.done or one.done;
        end if;
    end loop;
    if eve_cancel.cancellation_identity is not null then
        answer.detail := jsonb_build_object('cancelled', count);
    end if;
    return eve._act_keep(c, idempotency_key, answer);
end
$$;

comment on function public.eve_cancel(text, bigint, text, text, text, text) is
'Cancel an item, or all of a cancellation identity including what is submitted later. Waiting work ends at once; a lease is superseded, or after an effect start only asked; with an item ends the demand of all requests that it represents. Answers done = false for unknown, foreign, finished and quarantined items.';

commit;
