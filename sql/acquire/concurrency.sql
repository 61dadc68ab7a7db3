-- acquire/concurrency.sql · gate: concurrency_exhausted
begin;

create function eve._gate_concurrency(door eve.door)
returns boolean
language sql
immutable
return not (door).free or (door).saturated is not null;

comment on function eve._gate_concurrency(eve.door) is
'Gate concurrency_exhausted: true refuses. No slot of the pool is free, what the class depends on takes no more work, or the limit key of the item is saturated.';

commit;
