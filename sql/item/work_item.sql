-- item/work_item.sql · the projection: queue_state is a cache of the fold, droppable and rebuildable, its shape a constraint.
begin;

create function eve._state_shape(item bigint, state eve.state)
returns boolean
language sql
immutable
return (
    (state).version >= 1
    and pg_catalog.isfinite((state).at)
    and case
        when item = 0 then (state).phase is null and (state).token is null and (state).attempts is null
        else (state).phase in (
                'held', 'ready', 'leased', 'uncertain', 'reported', 'completed', 'verified',
                'quarantined', 'rejected', 'expired', 'cancelled', 'coalesced', 'dead')
            and (state).attempts >= 0
            and (state).allowance >= 0
            and (state).credits >= 0
            and (state).token >= 0
            and (state).token < 9007199254740992
            and (state).rank between 0 and 3
            and (state).effect_started is not null
            and (state).cancel_requested is not null
            and ((state).phase <> 'ready' or (state).ready_since is not null and (state).late is not null)
            and ((state).phase = 'leased') = ((state).principal is not null)
            and ((state).phase = 'leased') = ((state).worker is not null)
            and ((state).phase = 'leased') = ((state).pool is not null)
            and ((state).phase = 'leased') = ((state).slot is not null)
            and ((state).phase = 'leased') = ((state).acquired_at is not null)
            and ((state).phase = 'leased') = ((state).expires_at is not null)
            and ((state).phase <> 'leased' or (state).attempts >= 1 and (state).token >= 1
                and (state).expires_at > (state).acquired_at)
    end
) is true;

comment on function eve._state_shape(bigint, eve.state) is
'Whether a value is a possible state of an item: phases known, counters not negative, a lease exactly when leased.';

create table eve.work_item (
    queue_id bigint not null,
    item bigint not null,
    class_id integer not null,
    lane smallint not null,
    queue_state eve.state not null,
    hash bytea not null,
    constraint work_item_pkey primary key (queue_id, item),
    constraint work_item_queue_state_shape check (eve._state_shape(item, queue_state) is true)
)
with (fillfactor = 60);

comment on table eve.work_item is
'One row an item: queue_state is the fold of its ledger, hash that of its last event. No index touches the state, so that a step is a HOT update.';

commit;
