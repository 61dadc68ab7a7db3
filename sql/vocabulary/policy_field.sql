-- vocabulary/policy_field.sql · the twenty-two fields of a class's contract, and the twenty-one questions they answer.
begin;

create table eve.policy_field (
    field text not null,
    settings text[] not null,
    engine boolean not null,
    meaning text not null,
    constraint policy_field_pkey primary key (field)
);

comment on table eve.policy_field is
'The fields of a class''s contract. settings are the attributes of eve.policy that answer it; where engine is true the queue itself answers what is not set; the rest is said in words under "declared" of the policy document, or stays unanswered and is reported by name.';

insert into eve.policy_field (field, settings, engine, meaning) values
('intent_identity', '{effect_unique}', false, 'the stable scope of an operation and of its effect'),
('caller_scope', '{submitters}', false, 'tenants, account classes or services that may submit'),
('work_class', '{own_lane,limit_per_key}', false, 'type of work, priority, cost, shape of dependencies'),
('value_window', '{value_window}', false, 'how long the result is worth having'),
('end_to_end_deadline', '{life,completion_margin}', false, 'absolute expiry and the margin that completion needs'),
('queue_budget', '{item_limit,byte_limit,age_limit,shared_item_limit,shared_byte_limit}', false,
    'how many items and bytes may wait, how old they may grow'),
('admission_owner', '{}', true, 'the one layer that admits: eve_submit'),
('execution_owner', '{}', true, 'the one holder of a live lease'),
('retry_owner', '{retry_owner}', false, 'the one layer that repeats'),
('repetition_policy', '{replay_class,protection}', false, 'what a repetition of the effect may do'),
('capacity_model', '{evidence,evidence_limit,freshness,measure_window,dependencies}', false,
    'measured rates, concurrency and the bounds of outside dependencies'),
('scheduling_policy', '{}', true, 'priority, ageing, ties: order of picks in the contract record'),
('coalescing_policy', '{coalesce}', false, 'which requests may be merged, by which rule'),
('cancellation_policy', '{cancel_boundary}', false, 'how far a cancellation reaches'),
('expiry_policy', '{}', true, 'deadline and value are judged at submit, release, acquisition and sweep'),
('lease_policy', '{ttl_floor,ttl,ttl_ceiling,max_age}', true, 'how long a lease lasts, how it is renewed and fenced'),
('overload_response', '{wait_hint}', false, 'what a refused caller is told'),
('dead_letter_policy', '{attempts,retention}', true, 'bounded attempts, the quarantine record, who reviews it'),
('terminal_evidence', '{completion_test,evidence_kinds,engine_verifies,verifier_not_holder}', false,
    'what makes an end authoritative'),
('telemetry_policy', '{}', false, 'what is measured and kept, and what is not'),
('payload_validation', '{payload_limit,schema}', false, 'schema, size, meaning and authority of a payload'),
('configuration_version', '{}', true, 'the revision that judged: every class_defined event');

create table eve.question (
    number integer not null,
    question text not null,
    fields text[] not null,
    constraint question_pkey primary key (number),
    constraint question_is_one_of_21 check (number between 1 and 21)
);

comment on table eve.question is
'The twenty-one questions that a class should answer before it takes work, each with the fields that answer it. What nobody answered is reported by eve_define_class, never filled in.';

insert into eve.question (number, question, fields) values
(1, 'Which exact intent does an item carry?', '{intent_identity}'),
(2, 'When does the result stop being useful?', '{value_window}'),
(3, 'Does the deadline cover waiting, pickup, execution, dependencies and recording?', '{end_to_end_deadline}'),
(4, 'Which item and byte limits hold?', '{queue_budget}'),
(5, 'Which age sets off what?', '{queue_budget}'),
(6, 'Which measured drain rate stands behind an expected wait?', '{capacity_model}'),
(7, 'From which age on is a measurement not believed?', '{capacity_model}'),
(8, 'Which scarce dependency, connection, memory or concurrency is budgeted?', '{capacity_model,work_class}'),
(9, 'May it be repeated after a timeout, a crash or a lost lease?', '{repetition_policy}'),
(10, 'Where is an earlier effect looked up?', '{repetition_policy,terminal_evidence}'),
(11, 'Which one layer repeats?', '{retry_owner}'),
(12, 'Do redeliveries spend the same budget?', '{dead_letter_policy}'),
(13, 'Which classes go before others?', '{scheduling_policy}'),
(14, 'Which rule prevents starvation?', '{scheduling_policy}'),
(15, 'Which intents are merged, by which key?', '{coalescing_policy}'),
(16, 'How does a cancellation reach work before and after its lease?', '{cancellation_policy}'),
(17, 'Which fence stops an expired worker?', '{lease_policy}'),
(18, 'What happens when parked work is too much to keep?', '{dead_letter_policy,queue_budget}'),
(19, 'What is a refused caller told, and what does a hint mean?', '{overload_response}'),
(20, 'Which records tell the kinds of ends apart?', '{terminal_evidence}'),
(21, 'Which checks make a stored payload valid and authorised?', '{payload_validation,caller_scope}');

commit;
