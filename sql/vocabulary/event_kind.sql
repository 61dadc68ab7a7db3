-- vocabulary/event_kind.sql · what can happen: to an item, and under item 0 to the queue itself.
begin;

create table eve.event_kind (
    kind text not null,
    scope text not null,
    meaning text not null,
    constraint event_kind_pkey primary key (kind),
    constraint event_kind_scope_is_known check (scope in ('item', 'queue'))
);

comment on table eve.event_kind is
'The kinds of events: facts about one item, or facts of the queue recorded under item 0. Source: contract, section 3.';

insert into eve.event_kind (kind, scope, meaning) values
('admitted', 'item', 'joined eligible demand'),
('held', 'item', 'waits for the named reasons'),
('coalesced', 'item', 'represented by a survivor'),
('imported', 'item', 'settled elsewhere, taken over under an import decision'),
('released', 'item', 'its last reason to wait is gone'),
('acquired', 'item', 'leased, with the next fencing token'),
('renewed', 'item', 'lease extended, or progress reported'),
('effect_started', 'item', 'an outside effect is about to happen'),
('effect_observed', 'item', 'an outside effect was observed'),
('reported', 'item', 'completion claimed while effects are missing'),
('completed', 'item', 'complete by its completion test'),
('verified', 'item', 'judged complete by a verifier'),
('failed', 'item', 'the holder reported a failure'),
('returned', 'item', 'the holder gave the lease back'),
('lease_expired', 'item', 'recovered: the lease lapsed'),
('lease_missing', 'item', 'recovered: leased without a lease row'),
('lease_superseded', 'item', 'recovered: the lease row''s token is not the ledger''s'),
('parked', 'item', 'its budget was found spent'),
('reconciled', 'item', 'an uncertain effect was looked up'),
('cancel_requested', 'item', 'cancellation asked after an effect started'),
('cancelled', 'item', 'cancelled'),
('expired', 'item', 'its lifetime ended'),
('rejected', 'item', 'ended by a human'),
('unparked', 'item', 'returned from quarantine by a human'),
('reprioritised', 'item', 'rank changed'),
('absorbed', 'item', 'took over the demand of another request'),
('compensated', 'item', 'a compensating effect was recorded'),
('dead', 'item', 'quarantined past its retention'),
('purged', 'item', 'payload and projection dropped; the digest stays'),
('queue_created', 'queue', 'the queue began'),
('class_defined', 'queue', 'a class has a new policy revision'),
('pool_defined', 'queue', 'a pool exists'),
('access_granted', 'queue', 'a role may act'),
('access_revoked', 'queue', 'a role may no longer act'),
('decision_proposed', 'queue', 'a human was asked'),
('decision_accepted', 'queue', 'a human accepted'),
('decision_declined', 'queue', 'a human declined'),
('decision_consumed', 'queue', 'an answer was used, once'),
('halted', 'queue', 'acquisition stopped'),
('resumed', 'queue', 'acquisition allowed again'),
('paused', 'queue', 'a class or pool stopped'),
('unpaused', 'queue', 'a class or pool allowed again'),
('epoch_started', 'queue', 'tokens start above every earlier one'),
('clock_stepped', 'queue', 'the clock was seen behind an earlier reading'),
('schedule_defined', 'queue', 'periodic work is declared'),
('schedule_dropped', 'queue', 'periodic work ends'),
('sealed', 'queue', 'a range of events was sealed'),
('archived', 'queue', 'a segment left the hot tables');

commit;
