-- view/status.sql · what people read: items with their status word. Security barriers; granted to nobody, read through the verbs.
begin;

create view eve.item_status with (security_barrier) as
select
    w.queue_id,
    w.item,
    i.work_id,
    k.name as class,
    case when (w.queue_state).phase = 'held' and exists (
        select from eve.hold as h
        where h.queue_id = w.queue_id and h.item = w.item
            and h.reason in ('awaiting_decision', 'replay_class_unknown'))
        then 'needs_human' else p.status end as status,
    (w.queue_state).phase as phase,
    w.queue_state
from eve.work_item as w
join eve.intent as i on i.queue_id = w.queue_id and i.item = w.item
join eve.work_class as k on k.queue_id = w.queue_id and k.class_id = w.class_id
join eve.phase as p on p.phase = (w.queue_state).phase;

comment on view eve.item_status is
'Items with one of six status words: waiting, ready, running, needs_human, done, ended. Derived, never stored.';

commit;
