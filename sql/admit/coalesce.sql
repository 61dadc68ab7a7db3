-- admit/coalesce.sql · check: a waiting item already stands for the same demand, by the rule and the key that the class declares.
begin;

create function eve._survivor(c eve.caller, a eve.asked)
returns bigint
language plpgsql
as $$
begin
    return null;
end
$$;

comment on function eve._survivor(eve.caller, eve.asked) is
'The waiting item that takes over a request with this key; null when none waits.';

commit;
