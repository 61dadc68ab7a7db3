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

create function eve._fence_guarded(queue text, item bigint, token bigint, moved boolean)
returns void
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
begin
    if moved is null then
        perform eve._raise('55000', 'the table is fenced: TRUNCATE names no lease', null,
            'Delete the rows under a lease.');
    end if;
    perform public.eve_fence(queue, item, token);
    if moved then
        perform eve._refuse('stale_fence', queue, item, '{"because": "the row belongs to another item"}');
    end if;
end
$$;

comment on function eve._fence_guarded(text, bigint, bigint, boolean) is
'Judge one write to a fenced table from two numbers: values of the writer''s own types never reach this function.';

create function eve._fence_row()
returns trigger
language plpgsql
set search_path to pg_catalog, pg_temp
as $$
declare
    -- Runs with the writer's rights: casts and operators of the table's types are the writer's own affair.
    pair text := format('select ($1).%I, ($1).%I', tg_argv[1], tg_argv[2]);
    item bigint;
    token bigint;
    old_item bigint;
begin
    if tg_op = 'TRUNCATE' then
        perform eve._fence_guarded(tg_argv[0], null, null, null);
        return null;
    elsif tg_op = 'DELETE' then
        execute pair into item, token using old;
        perform eve._fence_guarded(tg_argv[0], item, token, false);
        return old;
    end if;
    execute pair into item, token using new;
    if tg_op = 'UPDATE' then
        execute pair into old_item using old;
    end if;
    perform eve._fence_guarded(tg_argv[0], item, token, tg_op = 'UPDATE' and old_item is distinct from item);
    return new;
end
$$;

comment on function eve._fence_row() is
'Trigger of a fenced table: every write names item and token of the writer''s live lease. Runs with the writer''s rights.';

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
    if exists (select from pg_class as k where k.oid = target and k.relkind <> 'r')
        or exists (select from pg_inherits as i where i.inhparent = target) then
        perform eve._raise('42809', 'the target is not a plain table without partitions or children', null,
            'Fence each partition or child table by itself.');
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
'The queue of a table to be fenced, for an operator of it; refuses what is not a plain table (42809) and a table without the two bigint columns (42703).';

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
'Fence a table of the caller: each write to a row must carry item and token of the writer''s live lease, DELETE in the old row; TRUNCATE is refused. Runs with the caller''s rights, who owns the table and operates the queue. Refuses partitioned and inherited tables (42809): fence each part.';

commit;
