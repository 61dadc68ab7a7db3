-- acquire/retry_budget.sql · gate: retry_budget_exhausted
begin;

create function eve._gate_retry_budget(door eve.door)
returns boolean
language sql
immutable
return coalesce((door).attempts >= (door).budget, false);

comment on function eve._gate_retry_budget(eve.door) is
'Gate retry_budget_exhausted: true refuses. Acquisitions reached the attempts allowed now, allowance included.';

commit;
