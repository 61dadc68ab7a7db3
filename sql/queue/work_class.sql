-- queue/work_class.sql · kinds of work and their policies: each change a new immutable revision.
begin;

create table eve.work_class (
    queue_id bigint not null,
    class_id integer not null,
    name text not null,
    lane smallint not null,
    revision integer not null,
    paused boolean not null,
    constraint work_class_pkey primary key (queue_id, class_id),
    constraint work_class_name_is_unique unique (queue_id, name),
    constraint work_class_name_is_short check (length(name) between 1 and 200 and name !~ '[[:cntrl:]]'),
    constraint work_class_lane_is_bounded check (lane between 1 and 16)
);

comment on table eve.work_class is
'A class of a queue, its current policy revision and its lane: classes that can be blocked apart from each other have lanes of their own, the others share lane 1.';

create table eve.class_revision (
    queue_id bigint not null,
    class_id integer not null,
    revision integer not null,
    policy eve.policy not null,
    preset text not null,
    document jsonb not null,
    digest bytea not null,
    answers jsonb not null,
    actor text not null,
    at timestamptz not null,
    constraint class_revision_pkey primary key (queue_id, class_id, revision)
);

comment on table eve.class_revision is
'The immutable revisions of a class policy: the value, the preset and document that gave it, their digest, who answered each of the twenty-two fields, who defined it and when.';

create function eve._policy(queue_id bigint, class_id integer, admitted integer)
returns eve.policy
language plpgsql
stable
as $$
declare
    found_one record;
    older eve.policy;
begin
    select k.revision, r.policy into found_one
    from eve.work_class as k
    join eve.class_revision as r
        on r.queue_id = k.queue_id and r.class_id = k.class_id and r.revision = k.revision
    where k.queue_id = _policy.queue_id and k.class_id = _policy.class_id;
    if found_one.revision = admitted or admitted is null then
        return found_one.policy;
    end if;
    older := (
        select r.policy from eve.class_revision as r
        where r.queue_id = _policy.queue_id and r.class_id = _policy.class_id and r.revision = admitted);
    return eve._stricter(older, found_one.policy);
end
$$;

comment on function eve._policy(bigint, integer, integer) is
'The policy that judges an item now: the stricter of the revision at its admission and of the current one.';

commit;
