-- api/contract.sql · the contract record: name, revision, policy, vocabularies, digest.
begin;

create function public.eve_contract()
returns jsonb
language sql
stable
security definer
set search_path to pg_catalog, pg_temp
begin atomic
    with record as (
        select jsonb_build_object(
            'name', c.name,
            'revision', c.revision,
            'decision', c.decision,
            'policy', jsonb_build_object(
                'local_leases', c.local_leases,
                'ttl_floor_s', extract(epoch from c.ttl_floor)::integer,
                'ttl_ceiling_s', extract(epoch from c.ttl_ceiling)::integer,
                'ttl_s', extract(epoch from c.ttl)::integer,
                'max_age_s', extract(epoch from c.max_age)::integer,
                'attempts', c.attempts,
                'aging_interval_s', extract(epoch from c.aging_interval)::integer,
                'starvation_ceiling_s', extract(epoch from c.aging_interval)::integer * 3,
                'slots_ceiling', c.slots_ceiling),
            'semantics', (select jsonb_agg(jsonb_build_object('semantic', s.semantic, 'layer', s.layer,
                'home', s.home, 'refusals', s.refusals) order by s.semantic) from eve.semantic as s),
            'refusals', (select jsonb_agg(jsonb_build_object('code', r.code, 'sqlstate', r.sqlstate,
                'channel', r.channel, 'http_status', r.http_status, 'retry', r.retry, 'message', r.message,
                'hint', r.hint) order by r.sqlstate) from eve.refusal as r),
            'phases', (select jsonb_agg(jsonb_build_object('phase', p.phase, 'status', p.status,
                'ended', p.ended) order by p.phase) from eve.phase as p),
            'kinds', (select jsonb_agg(jsonb_build_object('kind', k.kind, 'scope', k.scope) order by k.kind)
                from eve.event_kind as k),
            'reasons', (select jsonb_agg(jsonb_build_object('decision', x.decision, 'reason', x.reason,
                'owner', x.owner, 'trigger', x.trigger) order by x.decision, x.reason) from eve.reason as x),
            'replay_classes', (select jsonb_agg(y.replay_class order by y.severity) from eve.replay_class as y),
            'presets', (select jsonb_object_agg(z.preset, z.policy) from eve.preset as z)
        ) as body
        from eve.contract as c
    )
    select record.body || jsonb_build_object(
        'digest', encode(sha256(convert_to(record.body::text, 'UTF8')), 'hex'))
    from record;
end;

comment on function public.eve_contract() is
'The contract record eve.queue-semantics.v1: revision, default policy in seconds and counts, vocabularies, and the sha256 digest over the rest.';

commit;
