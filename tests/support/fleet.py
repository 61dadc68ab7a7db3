"""The servers of a test run and one cluster for each."""

from __future__ import annotations

from contextlib import ExitStack

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

    def close(self) -> None:
        self._stack.close()
