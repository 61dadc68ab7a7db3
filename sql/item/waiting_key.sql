-- item/waiting_key.sql · which waiting item stands for a key, where a class merges equivalent requests.
begin;

create table eve.waiting_key (
    queue_id bigint not null,
    class_id integer not null,
    key text not null,
    item bigint not null,
    constraint waiting_key_pkey primary key (queue_id, class_id, key)
);

create index waiting_key_item on eve.waiting_key (queue_id, item);

comment on table eve.waiting_key is
'One row a coalescing key of a class: the item that waits for it since its birth. Claimed by the submission before the item is stored, so that of two at once the second waits for the first; dropped by the fold when the item no longer waits. What was leased once is no survivor any more.';

create function eve._claim_key(queue_id bigint, class_id integer, key text, item bigint)
returns boolean
language plpgsql
as $$
begin
    -- A twin waits here until the first has committed or rolled back.
    insert into eve.waiting_key (queue_id, class_id, key, item)
    values (_claim_key.queue_id, _claim_key.class_id, _claim_key.key, _claim_key.item)
    on conflict on constraint waiting_key_pkey do nothing;
    return found;
end
$$;

comment on function eve._claim_key(bigint, integer, text, bigint) is
'Claim a coalescing key for a new item; false when another one waits for it.';

create function eve._unclaim_key(queue_id bigint, item bigint, replaced bigint)
returns void
language plpgsql
as $$
begin
    if replaced is null then
        perform eve._free_key(queue_id, item);
        return;
    end if;
    update eve.waiting_key as k set item = replaced
    where k.queue_id = _unclaim_key.queue_id and k.item = _unclaim_key.item;
end
$$;

comment on function eve._unclaim_key(bigint, bigint, bigint) is
'Give a claim back when the submission was refused after all: to the item that it would have replaced.';

create function eve._free_key(queue_id bigint, item bigint)
returns void
language plpgsql
as $$
begin
    delete from eve.waiting_key as k where k.queue_id = _free_key.queue_id and k.item = _free_key.item;
end
$$;

comment on function eve._free_key(bigint, bigint) is
'Free the coalescing key of an item that no longer waits. Called by the fold.';

create function eve._waiting_keys(queue_id bigint)
returns table (class_id integer, key text, item bigint)
language sql
stable
begin atomic
    -- The one that was not taken yet: claimed at its birth, and no other of its key may claim meanwhile.
    select i.class_id, i.coalescing_key, max(i.item)
    from eve.intent as i
    join eve.work_item as w on w.queue_id = i.queue_id and w.item = i.item
    where i.queue_id = _waiting_keys.queue_id and i.coalesces
        and (w.queue_state).phase in ('held', 'ready') and not exists (
            select from eve.ledger as l
            where l.queue_id = w.queue_id and l.item = w.item and l.phase not in ('held', 'ready'))
    group by i.class_id, i.coalescing_key;
end;

comment on function eve._waiting_keys(bigint) is
'What states say of coalescing keys: which waiting item stands for each.';

commit;
