"""Stores in etcd in the place of stores in memory, so that a suite which knows only memory runs there.

Each ``memory://`` is a prefix of its own, and ``memory://name`` one for as long as the test runs. The servers take more
operations in a transaction than these stores use: they have the limits of etcd by default.
"""

from __future__ import annotations

from typing import Any

from kvmodels import Limits
from kvmodels.engines.etcd.engine import EtcdEngine
from tests.etcd.server import EtcdCluster, EtcdNode

MEMORY = "memory://"
LACKING = ("change_log", "poll_interval")
"""Options of the engine in memory that etcd does not need: it tells of changes until they are compacted."""


class EtcdStores:
    """Makes engines in etcd from the arguments of ``MemoryEngine``.

    Args:
        server: holds the stores.
        test: a text that no other test has.
        options: of each engine.
    """

    def __init__(self, server: EtcdNode | EtcdCluster, test: str, options: dict[str, Any]) -> None:
        self._server = server
        self._options = options
        self._test = test
        self._prefixes: dict[str, str] = {}
        self._engines: list[EtcdEngine] = []
        self._unnamed = 0

    def open(self, limits: Limits | None = None, *, url: str = MEMORY, **options: Any) -> EtcdEngine:
        """Return an engine as ``MemoryEngine`` would be."""
        if url == MEMORY:
            self._unnamed += 1
            url = f"{MEMORY}{self._unnamed} unnamed"
        prefix = self._prefixes.setdefault(url, f"{self._test}/{len(self._prefixes)}")
        given = {"allow_lossy_server": True, **self._options, **options}
        for name in LACKING:
            given.pop(name, None)
        opened = EtcdEngine(self._server.url(prefix), limits, **given)
        self._engines.append(opened)
        return opened

    def close(self) -> None:
        """Close what the test has left open."""
        for engine in self._engines:
            engine.close()
