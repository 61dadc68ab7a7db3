-- api/acquire.sql · lease the next item, or a named one. Appends: acquired, and what housekeeping finds due. Returns its refusals.
begin;

create function eve._check_acquire(worker text, classes text[], max_items integer, ttl interval)
returns void
language plpgsql
immutable
as $$
begin
    perform eve._check_text('worker', worker, 512, true);
    if max_items is null or max_items not between 1 and 1000 then
        perform eve._raise('22023', 'max_items is not between 1 and 1000', '{"argument": "max_items"}',
            'Ask for 1 to 1000 items.');
    end if;
    if pg_catalog.cardinality(classes) = 0 or pg_catalog.array_ndims(classes) > 1
        or pg_catalog.array_position(classes, null) is not null then
        perform eve._raise('22023', 'classes is empty or has nulls', '{"argument": "classes"}',
            'Name at least one class, or leave classes out.');
    end if;
end
$$;

comment on function eve._check_acquire(text, text[], integer, interval) is
'Refuse malformed arguments of an acquisition (22004, 22023).';

create function eve._answers_kept(answers jsonb)
returns jsonb
language sql
immutable
return case when exists (
        select from pg_catalog.jsonb_array_elements(_answers_kept.answers) as a (value)
        where (a.value ->> 'granted')::boolean
            or a.value ->> 'accepted' is not null
            or a.value ->> 'refusal' in (
                'quarantined', 'retry_budget_exhausted', 'spend_not_approved', 'unknown_dependency',
                'dependency_cycle', 'lease_ttl_out_of_range'))
    then (
        select pg_catalog.jsonb_agg(eve._strip(a.value) - 'payload')
        from pg_catalog.jsonb_array_elements(_answers_kept.answers) as a (value))
end;

comment on function eve._answers_kept(jsonb) is
'The answers of a keyed acquisition that are kept: grants and refusals that do not say "later"; payloads are read again.';

create function public.eve_acquire(
    queue text,
    worker text,
    item bigint default null,
    classes text[] default null,
    pool text default null,
    ttl interval default null,
    max_items integer default 1,
    idempotency_key text default null
)
returns setof eve.acquisition_answer
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
    answers eve.acquisition_answer[];
    answer eve.acquisition_answer;
begin
    c := eve._enter(queue, '{worker}');
    perform eve._check_acquire(worker, classes, max_items, ttl);
    if idempotency_key is not null then
        prior := eve._request_open(c, idempotency_key, 'eve_acquire', eve._fingerprint('eve_acquire',
            eve._text(queue), int8send(item), eve._text(classes), eve._text(pool),
            interval_send(ttl), int4send(max_items)));
        if prior is not null then
            for answer in
                select (jsonb_populate_record(null::eve.acquisition_answer, a.value)).*
                from jsonb_array_elements(prior) as a (value)
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
    perform eve._housekeep(c, eve._clock(c));
    if idempotency_key is null then
        return query select * from eve._acquire(
            c, worker, item, classes, coalesce(pool, c.default_pool), ttl, max_items, '{}');
        return;
    end if;
    answers := array(select a from eve._acquire(
        c, worker, item, classes, coalesce(pool, c.default_pool), ttl, max_items, '{}') as a);
    perform eve._request_close(c, idempotency_key, eve._answers_kept(to_jsonb(answers)));
    return query select * from unnest(answers);
end
$$;

comment on function public.eve_acquire(text, text, bigint, text[], text, interval, integer, text) is
'Lease the next ready item in queue order (or the named one, or up to max_items), with a fencing token; the lease exists once the transaction commits. Returns a refusal, or granted = false with next_at when nothing is ready. Raises 42501, P0002, 22023 for callers and arguments that are wrong.';

commit;
