-- acquire/door.sql · the facts of one acquisition, and the gates in contract order.
begin;

create type eve.door as (
    halted boolean,
    ttl interval,
    ttl_floor interval,
    ttl_ceiling interval,
    named boolean,
    phase text,
    attempts integer,
    budget integer,
    blocked text,
    gated_hold boolean,
    slots integer,
    free boolean,
    saturated text,
    unknown_edges text[],
    cycle text[],
    open_edges text[],
    over_spend jsonb
);

comment on type eve.door is
'The facts that the gates judge, read before any write: halt, lease time, phase, budget, pool, edges, spend.';

commit;
