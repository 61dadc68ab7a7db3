-- acquire/halt.sql · gate: fleet_halted
begin;

create function eve._gate_halt(door eve.door)
returns boolean
language sql
immutable
return (door).halted;

comment on function eve._gate_halt(eve.door) is
'Gate fleet_halted: true refuses. The queue is halted.';

commit;
