-- item/work_item.sql · the projection: queue_state is a cache of the fold, droppable and rebuildable, its shape a constraint.
begin;

create function eve._state_shape(item bigint, state eve.state)
returns boolean
language plpgsql
immutable
parallel safe
as $$
begin
    -- A call, not an expression: a constraint's expression is planned anew by every statement.
    if item = 0 then
        return state.version >= 1 and pg_catalog.isfinite(state.at)
            and state.phase is null and state.token is null and state.attempts is null;
    end if;
    if (
        state.version >= 1
        and pg_catalog.isfinite(state.at)
        and state.attempts >= 0
        and state.allowance >= 0
        and state.credits >= 0
        and state.token >= 0
        and state.token < 9007199254740992
        and state.rank between 0 and 3
        and state.effect_started is not null
        and state.cancel_requested is not null
    ) is not true then
        return false;
    end if;
    if state.phase = 'leased' then
        return (
            state.principal is not null
            and state.worker is not null
            and state.pool is not null
            and state.slot is not null
            and state.attempts >= 1
            and state.token >= 1
            and pg_catalog.isfinite(state.expires_at)
            and state.expires_at > state.acquired_at
        ) is true;
    end if;
    return (
        state.phase in (
            'ready', 'held', 'uncertain', 'reported', 'completed', 'verified', 'quarantined',
            'rejected', 'expired', 'cancelled', 'coalesced', 'dead')
        and (state.phase <> 'ready' or (pg_catalog.isfinite(state.ready_since) and state.late is not null) is true)
        and state.principal is null
        and state.worker is null
        and state.pool is null
        and state.slot is null
        and state.acquired_at is null
        and state.expires_at is null
    ) is true;
end
$$;

comment on function eve._state_shape(bigint, eve.state) is
'Whether a value is a possible state of an item: phases known, counters not negative, a lease exactly when leased.';

create table eve.work_item (
    queue_id bigint not null,
    item bigint not null,
    class_id integer not null,
    lane smallint not null,
    size integer not null,
    coalesces boolean not null,
    effect_unique boolean not null,
    limited boolean not null,
    queue_state eve.state not null,
    hash bytea not null,
    constraint work_item_pkey primary key (queue_id, item),
    constraint work_item_queue_state_shape check (eve._state_shape(item, queue_state) is true)
)
with (fillfactor = 60);

comment on table eve.work_item is
'One row an item: queue_state is the fold of its ledger, hash that of its last event, size that of its payload, coalesces, effect_unique and limited whether it has claimed a coalescing key or an effect identity, or needs a ticket of its limit key. No index touches the state, so that a step is a HOT update.';

commit;
