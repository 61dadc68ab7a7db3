-- fold/replay.sql · the aggregate that folds events by the same step.
begin;

create aggregate eve.replay(eve.event) (
    sfunc = eve.step,
    stype = eve.state
);

comment on aggregate eve.replay(eve.event) is
'The state that a history gives: select eve.replay(event order by version). The same step as the live fold.';

commit;
