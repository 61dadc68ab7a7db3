-- api/turn.sql · finish these, lease the next: one call, one commit. Appends: completed, reported, acquired. Returns its refusals as rows.
begin;

create function public.eve_turn(
    queue text,
    worker text,
    items bigint[] default '{}',
    tokens bigint[] default '{}',
    results jsonb[] default null,
    classes text[] default null,
    pool text default null,
    ttl interval default null,
    max_items integer default 1,
    all_or_nothing boolean default false,
    idempotency_key text default null
)
returns setof eve.turn_answer
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
    prior jsonb;
    finished eve.finish_answer[];
    handed eve.held[] := '{}';
    f eve.finish_answer;
    a eve.acquisition_answer;
    answer eve.turn_answer;
    answers eve.turn_answer[] := '{}';
begin
    c := eve._enter(queue, '{worker}');
    perform eve._check_acquire(worker, classes, max_items, ttl);
    if items is null or tokens is null or all_or_nothing is null then
        perform eve._raise('22004', 'items, tokens or all_or_nothing is null', null,
            'Pass arrays of equal length, or none.');
    end if;
    if idempotency_key is not null then
        prior := eve._request_open(c, idempotency_key, 'eve_turn', eve._fingerprint('eve_turn',
            eve._text(queue), eve._text(items), eve._text(tokens), eve._text(results),
            eve._text(classes), eve._text(pool), interval_send(ttl), int4send(max_items),
            eve._text(all_or_nothing)));
        if prior is not null then
            for answer in
                select (jsonb_populate_record(null::eve.turn_answer, p.value)).*
                from jsonb_array_elements(prior) as p (value)
            loop
                answer.replayed := true;
                if answer.granted then
                    select i.payload into answer.payload from eve.intent as i
                    where i.queue_id = c.queue_id and i.item = answer.item;
                end if;
                return next answer;
            end loop;
            return;
        end if;
    end if;
    perform eve._durable(c);
    if cardinality(items) > 0 or cardinality(tokens) > 0 then
        select m.answers, m.handed into finished, handed
        from eve._complete_many(c, items, tokens, results, all_or_nothing) as m;
        foreach f in array finished loop
            answer := null;
            answer.part := 'finish';
            answer.item := f.item;
            answer.accepted := f.accepted;
            answer.refusal := f.refusal;
            answer.phase := f.phase;
            answer.version := f.version;
            answer.missing := f.missing;
            answer.next_at := f.next_at;
            answer.detail := f.detail;
            answer.replayed := f.replayed;
            answers := answers || answer;
        end loop;
    end if;
    -- After the finishes: they wait for door rows in item order, housekeeping takes them as they come.
    perform eve._housekeep(c, eve._clock(c));
    for a in
        select * from eve._acquire(c, worker, null, classes, coalesce(pool, c.default_pool), ttl, max_items, handed)
    loop
        answer := null;
        answer.part := 'acquire';
        answer.item := a.item;
        answer.refusal := a.refusal;
        answer.granted := a.granted;
        answer.work_id := a.work_id;
        answer.lease := a.lease;
        answer.token := a.token;
        answer.attempt := a.attempt;
        answer.attempts_left := a.attempts_left;
        answer.expires_at := a.expires_at;
        answer.clamped := a.clamped;
        answer.cancel_requested := a.cancel_requested;
        answer.class := a.class;
        answer.revision := a.revision;
        answer.payload := a.payload;
        answer.checkpoint := a.checkpoint;
        answer.last_error := a.last_error;
        answer.effect_identity := a.effect_identity;
        answer.deadline := a.deadline;
        answer.answers := a.answers;
        answer.pool := a.pool;
        answer.trace := a.trace;
        answer.next_at := a.next_at;
        answer.retry_after := a.retry_after;
        answer.next := a.next;
        answer.detail := a.detail;
        answer.replayed := a.replayed;
        answers := answers || answer;
    end loop;
    if idempotency_key is not null then
        perform eve._request_close(c, idempotency_key, eve._answers_kept(to_jsonb(answers)));
    end if;
    return query select * from unnest(answers);
end
$$;

comment on function public.eve_turn(
    text, text, bigint[], bigint[], jsonb[], text[], text, interval, integer, boolean, text
) is
'Complete the caller''s items and lease the next in one transaction: a row with part "finish" for each item in the order given, then the rows of the acquisition. Refusals are rows, unless all_or_nothing raises the first refused finish.';

commit;
