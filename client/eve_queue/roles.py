"""Who is what in a database: which login has which eve role, and who can become human.

Read from the server's own catalogues, so that anybody may ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg.rows import tuple_row

CAPABILITIES = ("producer", "worker", "verifier", "operator", "human", "auditor")

# "is": the role counts in a call. A superuser counts as a direct member only, as in eve._member.
# "set": it counts after SET ROLE to one of `through`. "grant": the login can make it so.
_QUERY: LiteralString = """
with door as (
    select r.oid, r.rolname, pg_catalog.substr(r.rolname, 5) as capability
    from pg_catalog.pg_roles as r
    where r.rolname in ('eve_producer', 'eve_worker', 'eve_verifier', 'eve_operator', 'eve_human',
        'eve_auditor')
),
login as (
    select r.oid, r.rolname, r.rolsuper, r.rolcreaterole
    from pg_catalog.pg_roles as r where r.rolcanlogin and r.rolname !~ '^pg_'
),
direct as (
    select m.member, m.roleid, pg_catalog.bool_or(m.admin_option) as admin_option
    from pg_catalog.pg_auth_members as m group by m.member, m.roleid
)
select
    l.rolname::text,
    d.capability,
    case when l.rolsuper then x.member is not null
        else pg_catalog.pg_has_role(l.oid, d.oid, 'USAGE') end,
    coalesce((
        select pg_catalog.array_agg(t.rolname::text order by t.rolname)
        from pg_catalog.pg_roles as t
        where t.oid <> l.oid and t.rolname !~ '^pg_'
            and pg_catalog.pg_has_role(l.oid, t.oid, how.set_role)
            and case when t.rolsuper
                then exists (select from direct as y where y.member = t.oid and y.roleid = d.oid)
                else pg_catalog.pg_has_role(t.oid, d.oid, 'USAGE') end), '{}'),
    l.rolsuper
        or l.rolcreaterole and pg_catalog.current_setting('server_version_num')::integer < 160000
        or exists (
            select from direct as y
            where y.roleid = d.oid and y.admin_option
                and pg_catalog.pg_has_role(l.oid, y.member, 'MEMBER'))
from login as l
cross join door as d
cross join (
    -- From 16 on a member may be kept from SET ROLE.
    select case when pg_catalog.current_setting('server_version_num')::integer < 160000
        then 'MEMBER' else 'SET' end as set_role
) as how
left join direct as x on x.member = l.oid and x.roleid = d.oid
order by l.rolname, d.rolname
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """One login and one capability.

    `holds`: it counts in every call of this login. `through`: roles under which it counts after
    SET ROLE. `grants`: the login can give it to itself or to others.
    """

    login: str
    capability: str
    holds: bool
    through: tuple[str, ...]
    grants: bool

    @property
    def word(self) -> str:
        """yes, set role …, can grant, or nothing."""
        if self.holds:
            return "yes"
        if self.through:
            return "set role " + self.through[0]
        return "can grant" if self.grants else ""


def standings(connection: psycopg.Connection[Any]) -> list[Standing]:
    """Every login of the cluster with every capability; access in a queue is asked in addition."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_QUERY)
        return [
            Standing(login, capability, holds, tuple(through), grants)
            for login, capability, holds, through, grants in cursor.fetchall()
        ]


def can_become_human(connection: psycopg.Connection[Any]) -> list[Standing]:
    """Logins that are human, can be after SET ROLE, or can make themselves so."""
    return [
        standing
        for standing in standings(connection)
        if standing.capability == "human" and standing.word
    ]


def access(history: list[Any]) -> dict[str, set[str]]:
    """Role → capabilities in a queue, folded from the events of its item 0."""
    granted: dict[str, set[str]] = {}
    for event in history:
        data = event.data or {}
        if event.kind == "access_granted":
            granted.setdefault(data["role"], set()).add(data["capability"])
        elif event.kind == "access_revoked":
            granted.get(data["role"], set()).discard(data["capability"])
    return granted
