-- acquire/quarantine.sql · gate: quarantined
begin;

create function eve._gate_quarantine(door eve.door)
returns boolean
language sql
immutable
return coalesce((door).phase = 'quarantined', false);

comment on function eve._gate_quarantine(eve.door) is
'Gate quarantined: true refuses. The item is parked.';

commit;
