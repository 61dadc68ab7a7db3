-- vocabulary/phase.sql · the phases of an item, and the six words that people read instead.
begin;

create table eve.phase (
    phase text not null,
    status text not null,
    ended boolean not null,
    meaning text not null,
    constraint phase_pkey primary key (phase),
    constraint phase_status_is_known
    check (status in ('waiting', 'ready', 'running', 'needs_human', 'done', 'ended'))
);

comment on table eve.phase is
'The phases of an item with their status word and whether they end it. Source: contract, sections 2 and 3.';

insert into eve.phase (phase, status, ended, meaning) values
('held', 'waiting', false, 'stored, with a set of reasons that each name an owner and a trigger'),
('ready', 'ready', false, 'eligible for an attempt'),
('leased', 'running', false, 'one holder has time-bounded, fenced authority'),
('uncertain', 'needs_human', false, 'an effect may or may not have happened; reconcile before another attempt'),
('reported', 'waiting', false, 'completion claimed while expected effects are still unobserved'),
('completed', 'needs_human', false, 'complete by its test, awaiting a verifier'),
('verified', 'done', false, 'the good end: verified from evidence'),
('quarantined', 'needs_human', false, 'parked with a record; only a human unparks'),
('rejected', 'ended', true, 'ended by a human'),
('expired', 'ended', true, 'its useful or allowed lifetime ended'),
('cancelled', 'ended', true, 'cancelled; no current or later holder may finish it'),
('coalesced', 'ended', true, 'represented by another item'),
('dead', 'ended', true, 'quarantined past its retention');

commit;
