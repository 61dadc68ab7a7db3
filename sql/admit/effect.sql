-- admit/effect.sql · checks: an effect that was observed is not asked for again; where the class says so, one live item an effect.
begin;

create function eve._effect_seen(queue_id bigint, effect_identity text)
returns boolean
language plpgsql
stable
as $$
begin
    return effect_identity is not null and exists (
        select from eve.effect as e
        where e.queue_id = _effect_seen.queue_id and e.effect_identity = _effect_seen.effect_identity
            and e.kind = 'observed');
end
$$;

comment on function eve._effect_seen(bigint, text) is
'Whether an effect was observed before, by any item of the queue.';

create function eve._effect_live(queue_id bigint, effect_identity text, but bigint)
returns boolean
language plpgsql
stable
as $$
begin
    return exists (
        select from eve.intent as i
        join eve.work_item as w on w.queue_id = i.queue_id and w.item = i.item
        where i.queue_id = _effect_live.queue_id and i.effect_identity = _effect_live.effect_identity
            and i.item is distinct from but and (w.queue_state).phase <> 'held'
            and eve._live((w.queue_state).phase));
end
$$;

comment on function eve._effect_live(bigint, text, bigint) is
'Whether another item with this effect identity is neither held, verified nor ended.';

create function eve._effect_hold(c eve.caller, a eve.asked)
returns jsonb
language plpgsql
stable
as $$
begin
    if a.effect_identity is not null and eve._effect_live(c.queue_id, a.effect_identity, null) then
        return pg_catalog.jsonb_build_array(
            eve._hold_json('effect_already_live', a.effect_identity, null, null));
    end if;
    return '[]';
end
$$;

comment on function eve._effect_hold(eve.caller, eve.asked) is
'The hold of an item whose effect another live item may still cause.';

commit;
