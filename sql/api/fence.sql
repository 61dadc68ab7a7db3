-- api/fence.sql · guard the caller's own writes by its lease, in the same transaction. Raises: stale_fence, not_lease_holder.
begin;

create function public.eve_fence(queue text, item bigint, token bigint)
returns eve.lease_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    h eve.held;
    answer eve.lease_answer;
begin
    c := eve._enter(queue, '{worker}');
    h := eve._fence_read(c, item, token);
    if h.fault is not null then
        perform eve._refuse(h.fault, c.queue, item, jsonb_build_object('token', token));
    end if;
    answer.item := item;
    answer.token := token;
    answer.expires_at := h.expires_at;
    answer.clamped := false;
    answer.replayed := false;
    select (w.queue_state).cancel_requested into answer.cancel_requested
    from eve.work_item as w where w.queue_id = c.queue_id and w.item = eve_fence.item;
    return answer;
end
$$;

comment on function public.eve_fence(text, bigint, bigint) is
'Prove the caller''s live lease and keep it from ending until this transaction ends: a renewal passes, an end waits, a recovery skips. Refuses a stale token, a lapsed lease and another holder.';

create function eve._fence_row()
returns trigger
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    guarded jsonb;
begin
    if tg_op = 'TRUNCATE' then
        perform eve._raise('55000', format('table "%s" is fenced: TRUNCATE names no lease', tg_table_name), null,
            'Delete the rows under a lease.');
    end if;
    guarded := to_jsonb(case when tg_op = 'DELETE' then old else new end);
    perform public.eve_fence(tg_argv[0], (guarded ->> tg_argv[1])::bigint, (guarded ->> tg_argv[2])::bigint);
    if tg_op = 'UPDATE' and old is distinct from new
        and (to_jsonb(old) ->> tg_argv[1]) is distinct from (guarded ->> tg_argv[1]) then
        perform eve._refuse('stale_fence', tg_argv[0], (guarded ->> tg_argv[1])::bigint,
            jsonb_build_object('because', 'the row belongs to another item'));
    end if;
    return case when tg_op = 'DELETE' then old else new end;
end
$$;

comment on function eve._fence_row() is
'Trigger of a fenced table: every write names item and token of the writer''s live lease.';

create function eve._fence_queue(queue text, target regclass, item_column text, token_column text)
returns text
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller := eve._look(queue, '{operator}');
begin
    if target is null then
        perform eve._raise('22004', 'target is null', '{"argument": "target"}', 'Name a table that you own.');
    end if;
    if (select count(*) from pg_attribute as a
        where a.attrelid = target and a.attnum > 0 and not a.attisdropped
            and a.atttypid = 'bigint'::regtype and a.attname in (item_column, token_column)) <> 2 then
        perform eve._raise('42703', 'item_column and token_column are not two bigint columns of the table',
            jsonb_build_object('item_column', left(item_column, 63), 'token_column', left(token_column, 63)),
            'Add both as bigint not null.');
    end if;
    return c.queue;
end
$$;

comment on function eve._fence_queue(text, regclass, text, text) is
'The queue of a table to be fenced, for an operator of it; refuses a table without the two bigint columns (42703).';

create function public.eve_fence_table(
    queue text,
    target regclass,
    item_column text,
    token_column text
)
returns void
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    name text := eve._fence_queue(queue, target, item_column, token_column);
begin
    execute format(
        'create trigger eve_fence before insert or update or delete on %s'
        ' for each row execute function eve._fence_row(%L, %L, %L)',
        target, name, item_column, token_column);
    execute format(
        'create trigger eve_fence_truncate before truncate on %s'
        ' for each statement execute function eve._fence_row(%L, %L, %L)',
        target, name, item_column, token_column);
    execute format('alter table %s enable always trigger eve_fence', target);
    execute format('alter table %s enable always trigger eve_fence_truncate', target);
end
$$;

comment on function public.eve_fence_table(text, regclass, text, text) is
'Fence a table of the caller: each write to a row must carry item and token of the writer''s live lease, DELETE in the old row; TRUNCATE is refused. Runs with the caller''s rights, who owns the table and operates the queue.';

commit;
