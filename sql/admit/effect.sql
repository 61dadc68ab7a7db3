-- admit/effect.sql · checks: an effect that was observed is not asked for again; where the class says so, one live item an effect, exactly.
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

create function eve._effect_free(queue_id bigint, effect_identity text, item bigint)
returns boolean
language plpgsql
stable
as $$
begin
    return not exists (
        select from eve.live_effect as e
        where e.queue_id = _effect_free.queue_id and e.effect_identity = _effect_free.effect_identity
            and e.item <> _effect_free.item);
end
$$;

comment on function eve._effect_free(bigint, text, bigint) is
'Whether no other item may cause an effect now.';

create function eve._admit_effect(c eve.caller, effect_identity text, item bigint)
returns text
language plpgsql
as $$
begin
    if not eve._claim_effect(c.queue_id, effect_identity, item) then
        return 'effect_already_live';
    elsif eve._effect_seen(c.queue_id, effect_identity) then
        -- Seen by the item that had it until now, after this submission had looked.
        perform eve._free_effect(c.queue_id, item);
        return 'effect_already_observed';
    end if;
    return null;
end
$$;

comment on function eve._admit_effect(eve.caller, text, bigint) is
'Claim the effect of a submission whose class allows one live item an effect: null when it is its own now, else why not.';

commit;
