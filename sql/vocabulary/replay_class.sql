-- vocabulary/replay_class.sql · what a repetition of the effect may do. No default: it is said when a class is defined.
begin;

create table eve.replay_class (
    replay_class text not null,
    severity smallint not null,
    meaning text not null,
    constraint replay_class_pkey primary key (replay_class),
    constraint replay_class_severity_is_unique unique (severity)
);

comment on table eve.replay_class is
'The five replay classes, the milder first; of a class and a submission the worse one counts. Source: contract, section 4.';

insert into eve.replay_class (replay_class, severity, meaning) values
('safe', 0, 'repetition is harmless'),
('destination_protected', 1, 'the destination refuses or absorbs a duplicate'),
('reconcilable', 2, 'an authoritative record can be read before a retry'),
('non_repeatable', 3, 'a repeat may do a second irreversible effect and nothing can tell'),
('unknown', 4, 'not classified yet: stored and held');

commit;
