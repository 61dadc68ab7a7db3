-- The language stays: eve_plpython did not bring it.
begin;

commit;
