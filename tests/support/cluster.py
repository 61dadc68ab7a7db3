"""A cluster of one's own: socket only, trust, fsync off, gone when the test session ends."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from support.servers import Server

FAST = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off"
AS_POSTGRES: dict[str, Any] = (
    {"user": "postgres", "group": "postgres", "extra_groups": []}
    if os.geteuid() == 0 and "postgres" in (p.pw_name for p in pwd.getpwall())
    else {}
)


class Cluster:
    """One running server; superuser `postgres`, connections through a socket directory."""

    def __init__(self, server: Server, options: str = FAST) -> None:
        self.server = server
        self.home = Path(tempfile.mkdtemp(prefix=f"eve{server.major}-", dir="/tmp"))
        self.options = f"-p 5432 -k {self.home} -c listen_addresses= {options}"
        if AS_POSTGRES:
            shutil.chown(self.home, "postgres", "postgres")
        self.run(
            "initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "-E", "UTF8",
            "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip
        self.start()

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        """The server log; read it when a connection died."""
        return self.home / "log"

    def run(self, program: str, *arguments: object) -> None:
        """One of the server's programs, as the user that owns the data directory."""
        subprocess.run(
            [str(self.server.bindir / program), *map(str, arguments)],
            check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT, **AS_POSTGRES,
        )  # fmt: skip

    def start(self, extra: str = "") -> None:
        """Starts it, also again after `stop`; `extra` is appended to the server's options."""
        self.run("pg_ctl", "-D", self.data, "-l", self.log, "-w", "-o",
                 f"{self.options} {extra}", "start")  # fmt: skip

    def stop(self, mode: str = "fast") -> None:
        """`fast` writes a checkpoint; `immediate` is a crash of the server."""
        self.run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.home)

    def dsn(self, database: str = "postgres", role: str = "postgres") -> str:
        return f"host={self.home} port=5432 dbname={database} user={role}"

    def uri(self, database: str = "postgres", role: str = "postgres") -> str:
        return f"postgresql://{role}@/{database}?host={self.home}&port=5432"

    def connect(self, database: str = "postgres", role: str = "postgres") -> psycopg.Connection:
        return psycopg.connect(self.dsn(database, role), autocommit=True)

    def environment(self, database: str = "postgres", role: str = "postgres") -> dict[str, str]:
        """For programs that read PGHOST and kin."""
        there = {"PGHOST": str(self.home), "PGPORT": "5432", "PGDATABASE": database, "PGUSER": role}
        return {**os.environ, **there}

    def create(self, database: str, template: str = "template1", owner: str = "postgres") -> None:
        with self.connect() as c:
            c.execute(f'create database "{database}" template "{template}" owner "{owner}"')

    def drop(self, database: str) -> None:
        with self.connect() as c:
            c.execute(f'drop database if exists "{database}" with (force)')

    def has_role(self, role: str) -> bool:
        with self.connect() as c:
            found = c.execute("select from pg_roles where rolname = %s", [role])
            return found.rowcount > 0

    def load(self, database: str, script: Path | str, role: str = "postgres") -> None:
        """Runs SQL without psql: a file or a text, in one simple-protocol call."""
        text = script.read_text(encoding="utf-8") if isinstance(script, Path) else script
        with self.connect(database, role) as c:
            c.execute(text.encode())

    def client(
        self, program: str, arguments: Sequence[object], database: str, text: str | None = None
    ) -> str:
        """Runs psql, pg_dump, pg_restore … and gives what it printed; raises with its errors."""
        done = subprocess.run(
            [str(self.server.program(program)), *map(str, arguments)],
            env=self.environment(database), input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"{program} {arguments}: {done.stderr[-4000:]}")
        return done.stdout


@contextmanager
def running(server: Server, options: str = FAST) -> Iterator[Cluster]:
    cluster = Cluster(server, options)
    try:
        yield cluster
    finally:
        cluster.remove()
