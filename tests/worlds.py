"""The engines and facades on which a test runs in `make test`; the soak has all of them."""

from __future__ import annotations

from typing import Any

import pytest


def in_the_soak(*values: object) -> list[Any]:
    """Parameters that only the soak has."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


def in_test_servers(*values: object) -> list[Any]:
    """Parameters that only `make test-servers` has."""
    return [pytest.param(value, marks=pytest.mark.servers) for value in values]


ENGINE_BY_ENGINE = frozenset({"contract", "engines", "kit", "stateful", "unit"})
"""Folders whose tests run on SQLite and LMDB in `make test`: of engines, and of random verbs of models.

In the others, a test that runs in memory too is left to `make test-servers` on files: models ask all engines alike.
"""

WORLDS = [
    "memory-async",
    "sqlite-sync",
    *in_test_servers("memory-sync", "lmdb-async"),
    *in_the_soak("sqlite-async", "lmdb-sync"),
]
"""For tests of a facade, one of which is generated from the other; both file engines use the same driver."""

MEMORY = ["memory", *in_the_soak("sqlite", "lmdb")]
"""For tests that ask an engine for rows alone: the contract suite sees that all engines give the same."""

MEMORY_AND_A_FILE = ["memory", "sqlite", *in_the_soak("lmdb")]
"""For tests that open a store again."""

SERVER_NAMES = ("postgres", "postgres15", "pgbouncer")
"""PostgreSQL 18 of a package, PostgreSQL 15 of Debian, and that through pgbouncer in transaction mode."""


ETCD_NAMES = ("etcd", "etcd34", "etcd34x3")
"""One node of etcd 3.5.1 of a package, one node of etcd 3.4.23 of Debian, and three of them."""


MEMORY_AND_IN_TEST_SERVERS = ["memory", *in_test_servers("sqlite", "lmdb")]
"""For hundreds of drawn queries, which are planned alike for all engines."""

ONE_FILE = ["sqlite", *in_the_soak("lmdb"), *in_test_servers("postgres")]
"""For tests with processes whose subject is not the engine."""

SERVERS = ["postgres", *in_test_servers(*SERVER_NAMES[1:])]
"""For tests of the contract: `make test` has the server that needs no installation."""


def server_options(engine: str) -> dict[str, Any]:
    """Options with which a store on a server is opened: a proxy that pools transactions keeps no statements."""
    return {"prepare": False} if engine == "pgbouncer" else {}


ETCD_OPERATIONS = 10_000
"""Operations that the servers of etcd take in a transaction."""


def etcd_options(engine: str) -> dict[str, Any]:
    """Options with which a store in etcd is opened by tests of the contract, which write much at once."""
    options: dict[str, Any] = {"max_txn_ops": ETCD_OPERATIONS}
    return {**options, "allow_lossy_server": True} if engine == "etcd" else options
