-- item/live_effect.sql · which item may cause an effect now, for classes that allow one live item an effect identity.
begin;

create table eve.live_effect (
    queue_id bigint not null,
    effect_identity text not null,
    item bigint,
    constraint live_effect_pkey primary key (queue_id, effect_identity)
);

create index live_effect_item on eve.live_effect (queue_id, item) where item is not null;
create index live_effect_free on eve.live_effect (queue_id, effect_identity) where item is null;

comment on table eve.live_effect is
'One row an effect identity of items whose class allows one live item an effect: the item that may cause it, uncertain and quarantined ones too; null when nobody may. The row is freed by the fold when its item is verified or ended, never deleted while a submission may wait on it.';

create function eve._claim_effect(queue_id bigint, effect_identity text, item bigint)
returns boolean
language plpgsql
as $$
begin
    -- KEY SHARE keeps the row until this submission is visible; whoever frees it or hands it on passes.
    perform from eve.live_effect as e
    where e.queue_id = _claim_effect.queue_id and e.effect_identity = _claim_effect.effect_identity
    for key share;
    if not found then
        -- A twin waits here until the first has committed or rolled back.
        insert into eve.live_effect (queue_id, effect_identity, item)
        values (_claim_effect.queue_id, _claim_effect.effect_identity, _claim_effect.item)
        on conflict on constraint live_effect_pkey do nothing;
        if found then
            return true;
        end if;
        perform from eve.live_effect as e
        where e.queue_id = _claim_effect.queue_id and e.effect_identity = _claim_effect.effect_identity
        for key share;
    end if;
    update eve.live_effect as e set item = _claim_effect.item
    where e.queue_id = _claim_effect.queue_id and e.effect_identity = _claim_effect.effect_identity
        and e.item is null;
    return found;
end
$$;

comment on function eve._claim_effect(bigint, text, bigint) is
'Claim an effect identity for a submission: of two at once the second waits and gets false.';

create function eve._take_effect(queue_id bigint, effect_identity text, item bigint)
returns boolean
language plpgsql
as $$
declare
    owner bigint;
begin
    -- Nobody is waited for: a row that a submission is taking is taken.
    perform from eve.live_effect as e
    where e.queue_id = _take_effect.queue_id and e.effect_identity = _take_effect.effect_identity
        and e.item is null
    for no key update skip locked;
    if found then
        update eve.live_effect as e set item = _take_effect.item
        where e.queue_id = _take_effect.queue_id and e.effect_identity = _take_effect.effect_identity;
        return true;
    end if;
    select e.item into owner from eve.live_effect as e
    where e.queue_id = _take_effect.queue_id and e.effect_identity = _take_effect.effect_identity;
    return coalesce(owner = _take_effect.item, false);
end
$$;

comment on function eve._take_effect(bigint, text, bigint) is
'Take a free effect identity for an item that waited for it, without waiting for anybody; true when the item has it.';

create function eve._free_effect(queue_id bigint, item bigint)
returns void
language plpgsql
as $$
begin
    update eve.live_effect as e set item = null
    where e.queue_id = _free_effect.queue_id and e.item = _free_effect.item;
end
$$;

comment on function eve._free_effect(bigint, bigint) is
'Free the effect identity of an item that is verified or ended. Called by the fold.';

create function eve._forget_effects(queue_id bigint, at_most integer)
returns integer
language plpgsql
as $$
declare
    free text[];
    forgotten integer;
begin
    if pg_catalog.current_setting('transaction_isolation') <> 'read committed' then
        return 0;
    end if;
    -- First the locks, in which no submission is; then, in a later snapshot, whether somebody waits.
    free := array(
        select e.effect_identity from eve.live_effect as e
        where e.queue_id = _forget_effects.queue_id and e.item is null
        limit at_most for update skip locked);
    delete from eve.live_effect as e
    where e.queue_id = _forget_effects.queue_id and e.effect_identity = any (free) and e.item is null
        and not exists (
            select from eve.hold as h
            where h.queue_id = e.queue_id and h.trigger = 'effect' and h.ref = e.effect_identity);
    get diagnostics forgotten = row_count;
    return forgotten;
end
$$;

comment on function eve._forget_effects(bigint, integer) is
'Drop free effect identities that nobody waits for.';

create function eve._live_effects(queue_id bigint)
returns table (effect_identity text, item bigint)
language sql
stable
begin atomic
    select i.effect_identity,
        max(i.item) filter (where (w.queue_state).phase <> 'held' or not exists (
            select from eve.hold as h
            where h.queue_id = i.queue_id and h.item = i.item and h.trigger = 'effect'))
    from eve.intent as i
    join eve.work_item as w on w.queue_id = i.queue_id and w.item = i.item
    where i.queue_id = _live_effects.queue_id and i.effect_unique and eve._live((w.queue_state).phase)
    group by i.effect_identity;
end;

comment on function eve._live_effects(bigint) is
'What states and holds say of live effects: the rows that must be there, each with the one item that may cause the effect.';

commit;
