"""The roads on which eve comes into a database, and what two databases are compared by."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import build
from support.cluster import Cluster
from support.servers import ROOT

DETACH = """
do $do$
declare
    member record;
begin
    for member in
        select d.classid, d.objid, i.type, i.identity
        from pg_depend as d
        join pg_extension as e
            on d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid
        cross join lateral pg_identify_object(d.classid, d.objid, d.objsubid) as i
        where e.extname = '%(extension)s' and d.deptype = 'e'
        order by d.classid <> 'pg_class'::regclass, d.objid desc
    loop
        -- A relation takes its row type along, a type its array type (PostgreSQL 17, 18).
        continue when not exists (
            select from pg_depend as d
            where d.classid = member.classid and d.objid = member.objid and d.deptype = 'e'
        );
        execute format('alter extension %(extension)s drop %%s %%s', member.type, member.identity);
    end loop;
end
$do$;
drop extension %(extension)s;
"""
LEFT_BEHIND = """
select format('%%s %%s', i.type, i.identity)
from (
    select 'pg_class'::regclass as class, oid from pg_class
    union all select 'pg_proc'::regclass, oid from pg_proc
    union all select 'pg_type'::regclass, oid from pg_type
    union all select 'pg_namespace'::regclass, oid from pg_namespace
    union all select 'pg_default_acl'::regclass, oid from pg_default_acl
) as o
cross join lateral pg_identify_object(o.class, o.oid, 0) as i
where o.oid >= 16384 and coalesce(i.schema, i.name, '') !~ '^(sqitch|pg_toast)'
    and i.identity !~ '^(sqitch|pg_toast)[.]'
union all
-- The rights on schema public are those of a new database.
select format('acl of schema public: %%s', a)
from pg_namespace as n, unnest(n.nspacl) as a
where n.nspname = 'public' and a::text <> all (%s)
order by 1
"""
NOISE = re.compile(r"^(\\(un)?restrict .*|-- Dumped .*|SET transaction_timeout .*)\n", re.MULTILINE)


PLPYTHON = ROOT / "plpython"


def detach(extension: str = "eve") -> str:
    """Lets the members of an extension go and drops it, so that comparisons see them."""
    return DETACH % {"extension": extension}


def plain_script(project: Path = ROOT) -> str:
    """What `psql -f dist/eve.sql` runs, or dist/eve_plpython.sql."""
    (text,) = build.Plan.read(project).plain().values()
    return text


def revert_script(project: Path = ROOT) -> str:
    """The revert scripts, the last change first: what `sqitch revert` runs, in one session."""
    changes = reversed(build.Plan.read(project).changes)
    return "".join(change.script("revert").read_text(encoding="utf-8") for change in changes)


def sqitch(
    cluster: Cluster, database: str, *arguments: str, role: str = "postgres", project: Path = ROOT
) -> str:
    """Runs Sqitch in a project against this database; raises with what it said."""
    environment = cluster.environment(database, role)
    command, *rest = arguments
    done = subprocess.run(
        ["sqitch", command, *rest, f"db:pg:{database}"],
        cwd=project, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"sqitch {command}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def psql(cluster: Cluster, database: str, text: str, role: str = "postgres") -> None:
    """Runs a script as `psql -f` does, and stops at the first error."""
    flags = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", role]
    cluster.client("psql", flags, database, text)


def by_sqitch(cluster: Cluster, database: str) -> None:
    sqitch(cluster, database, "deploy", "--verify")


def by_plain(cluster: Cluster, database: str) -> None:
    psql(cluster, database, plain_script())


def by_extension(cluster: Cluster, database: str) -> None:
    """Its files are put in place once more: another checkout's test run may have come between."""
    build.main(["install", "--sharedir", str(cluster.server.sharedir)])
    cluster.load(database, "create extension eve")


ROADS = {"sqitch": by_sqitch, "plain": by_plain, "extension": by_extension}


def schema_text(cluster: Cluster, database: str) -> str:
    """`pg_dump -s` without what differs from run to run."""
    return NOISE.sub("", cluster.client("pg_dump", ["-s", "-N", "sqitch"], database))


def left_behind(cluster: Cluster, database: str) -> list[str]:
    """What is in a database beyond a new one: objects, default rights, rights on schema public."""
    with cluster.connect("template1") as c:
        query = (
            "select a::text from pg_namespace as n, unnest(n.nspacl) as a where nspname = 'public'"
        )
        new = [row[0] for row in c.execute(query)]
    with cluster.connect(database) as c:
        return [row[0] for row in c.execute(LEFT_BEHIND, [new])]


def migra(cluster: Cluster, one: str, other: str) -> str:
    """The statements that would turn one database into the other: nothing when they are equal."""
    program = Path(sys.executable).parent / "migra"
    found = ""
    for schema in ("eve", "public"):
        done = subprocess.run(
            [program, "--unsafe", "--with-privileges", "--schema", schema,
             cluster.uri(one), cluster.uri(other)],
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode not in (0, 2):
            raise AssertionError(f"migra: {done.stderr[-4000:]}")
        found += done.stdout
    return found.strip()


def dump(cluster: Cluster, database: str, *options: str) -> str:
    """Schema and data as SQL; settings that the same server does not know are taken out."""
    return NOISE.sub("", cluster.client("pg_dump", options, database))


def pg_restore(cluster: Cluster, database: str, *arguments: object) -> None:
    """Runs pg_restore; a setting that the server does not know yet is no error, all else is."""
    try:
        cluster.client("pg_restore", ["-d", database, *arguments], database)
    except AssertionError as failed:
        errors = re.findall(r"ERROR: .*", str(failed))
        if {e for e in errors if "transaction_timeout" not in e} or not errors:
            raise


def roles_script(cluster: Cluster) -> str:
    """What makes the cluster's roles in another cluster, where `postgres` is there already."""
    text = NOISE.sub("", cluster.client("pg_dumpall", ["--roles-only"], "postgres"))
    return re.sub(r"^(CREATE|ALTER) ROLE postgres\b.*\n", "", text, flags=re.MULTILINE)


def contents(cluster: Cluster, database: str) -> dict[str, str]:
    """A digest of the rows of each table of eve, and the position of each of its sequences."""
    found: dict[str, str] = {}
    with cluster.connect(database) as c:
        relations = c.execute(
            "select relkind::text, relname::text from pg_class"
            " where relnamespace = 'eve'::regnamespace and relkind in ('r', 'p', 'S') order by 2"
        ).fetchall()
        for kind, name in relations:
            if kind == "S":
                row = c.execute(f"select last_value, is_called from eve.{name}").fetchone()
                found[name] = str(row)
                continue
            rows = c.execute(f"select t::text from eve.{name} as t order by 1").fetchall()
            digest = hashlib.sha256("\n".join(r[0] for r in rows).encode()).hexdigest()
            found[name] = f"{len(rows)} rows {digest[:16]}"
    return found
