-- vocabulary/preset.sql · presets answer a policy's questions by name and are recorded as the answerer.
begin;

create table eve.preset (
    preset text not null,
    policy jsonb not null,
    meaning text not null,
    constraint preset_pkey primary key (preset)
);

comment on table eve.preset is
'Named answers to the questions of a class policy; what a preset leaves open is read from eve.contract. Source: contract, section 14.';

insert into eve.preset (preset, policy, meaning) values
('job', '{"completion_test": "report", "engine_verifies": true, "cancel_boundary": "immediate",'
    ' "retry_owner": "queue", "coalesce": "none", "evidence": "none", "payload_limit": 1048576,'
    ' "retention": "30 days",'
    ' "declared": {"intent_identity": "operation_identity and work_id; the effect is operation:work_id",'
    ' "telemetry_policy": "counts, sizes and ages; no payload"}}',
    'the holder''s report is the test and the engine verifies it'),
('effect', '{"completion_test": "effects", "engine_verifies": true, "effect_starts": true,'
    ' "cancel_boundary": "effect_start",'
    ' "retry_owner": "queue", "coalesce": "none", "evidence": "none", "payload_limit": 1048576,'
    ' "retention": "30 days",'
    ' "declared": {"intent_identity": "operation_identity and work_id; the effect is operation:work_id",'
    ' "telemetry_policy": "counts, sizes and ages; no payload"}}',
    'complete when every expected effect was observed'),
('agent_task', '{"completion_test": "review", "engine_verifies": false, "verifier_not_holder": true,'
    ' "backoff_base": "30 s", "cancel_boundary": "immediate",'
    ' "retry_owner": "queue", "coalesce": "none", "evidence": "none", "payload_limit": 1048576,'
    ' "retention": "30 days",'
    ' "declared": {"intent_identity": "operation_identity and work_id; the effect is operation:work_id",'
    ' "telemetry_policy": "counts, sizes and ages; no payload"}}',
    'a verifier who did not hold the item judges the result'),
('imported', '{"completion_test": "report", "engine_verifies": true, "backoff_base": "0 s",'
    ' "cancel_boundary": "immediate",'
    ' "retry_owner": "queue", "coalesce": "none", "evidence": "none", "payload_limit": 1048576,'
    ' "retention": "30 days",'
    ' "declared": {"intent_identity": "operation_identity and work_id; the effect is operation:work_id",'
    ' "telemetry_policy": "counts, sizes and ages; no payload"}}',
    'work taken over from another system''s backlog');

commit;
