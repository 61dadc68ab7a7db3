-- acquire/acquirable.sql · gate: not_acquirable
begin;

create function eve._gate_acquirable(door eve.door)
returns boolean
language sql
immutable
return (
    (door).blocked is not null
    or ((door).named and (door).phase is distinct from 'ready' and not coalesce((door).gated_hold, false))
);

comment on function eve._gate_acquirable(eve.door) is
'Gate not_acquirable: true refuses. The phase is not ready, or the class or pool is paused; a hold for dependencies, a decision or a limit key is left to those gates.';

commit;
