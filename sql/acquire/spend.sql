-- acquire/spend.sql · gate: spend_not_approved
begin;

create function eve._gate_spend(door eve.door)
returns boolean
language sql
immutable
return (door).slots = 0 or (door).over_spend is not null;

comment on function eve._gate_spend(eve.door) is
'Gate spend_not_approved: true refuses. The pool has no approved slots, or the item or its tree has spent more than a human granted.';

commit;
