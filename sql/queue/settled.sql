-- queue/settled.sql · whether everybody who may have missed a row has ended: the second of two looks.
begin;

create function eve._settled(writer xid)
returns boolean
language plpgsql
stable
as $$
begin
    -- Both ages are counted from the same id, so that a row restored into another cluster is judged by its new writer.
    return pg_catalog.age(writer)
        > pg_catalog.age(pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::xid);
end
$$;

comment on function eve._settled(xid) is
'Whether every transaction with an id below that of a row''s writer (its xmin) has ended. Who acted before a row was committed, and missed it, had its id by then; a row marked once it is visible, in a subtransaction of its own, has a later one.';

commit;
