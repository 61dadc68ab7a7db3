"""The servers of a test run and one cluster for each."""

from __future__ import annotations

from contextlib import ExitStack

import psycopg

import build
from support import servers
from support.cluster import Cluster
from support.database import Home
from support.servers import Server


class Fleet:
    """The servers of this run; a cluster is started when first asked for, and kept."""

    def __init__(self) -> None:
        self.servers = servers.wanted()
        self._stack = ExitStack()
        self._homes: dict[Server, Home] = {}

    def home(self, server: Server | None = None) -> Home:
        server = server or self.servers[0]
        if server not in self._homes:
            cluster = Cluster(server)
            self._stack.callback(cluster.remove)
            self._homes[server] = Home(cluster)
        return self._homes[server]

    def speaking(self) -> Home:
        """The home of a server with PL/Python and jsonschema: of this run, else Debian's 15."""
        for server in self.servers:
            if speaks_python(home := self.home(server)):
                return home
        server = servers.find(15)
        build.main(["install", "--sharedir", str(server.sharedir)])
        if speaks_python(home := self.home(server)):
            return home
        raise servers.NoServer("no server speaks Python: .ci/needs.sh says what is missing")

    def close(self) -> None:
        self._stack.close()


def speaks_python(home: Home) -> bool:
    """Whether this server runs PL/Python and its Python has jsonschema."""
    with home.database(shipped=True) as database:
        try:
            database.rows("create extension plpython3u")
            database.rows("do 'import jsonschema' language plpython3u")
        except psycopg.Error:
            return False
        return True
