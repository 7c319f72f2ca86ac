"""PostgreSQL beside the engine in memory: what one says and holds after each operation, the other does too."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from kvmodels.core.operations import AtomicWrite, Check
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.errors import KvModelsError
from tests.contract.shorthand import EVERYTHING, commit, rows
from tests.contract.test_commits import _OPERATIONS
from tests.drawing import of_check
from tests.postgres.databases import Databases

pytestmark = pytest.mark.servers


@settings(max_examples=of_check(60))
@given(_OPERATIONS)
def test_both_agree_on_every_operation(databases: Databases, operations):
    source = 1_000
    engines: list[Engine] = [
        MemoryEngine(clock=lambda: source),
        PostgresEngine(databases.emptied(), clock=lambda: source),
    ]
    for engine in engines:
        commit(engine)  # the first versionstamp is one more in a new store of the server
    for checks, mutations in operations:
        outcomes: list[object] = []
        for engine in engines:
            current = {row.key: row.versionstamp for row in rows(engine, EVERYTHING)}
            write = AtomicWrite(
                tuple(Check(key, current.get(key) if right else b"\1" * 10) for key, right in checks), tuple(mutations)
            )
            try:
                outcomes.append(engine.commit(write))
            except KvModelsError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]
        held = [rows(engine, EVERYTHING) for engine in engines]
        assert held[0] == held[1]
    for engine in engines:
        engine.close()
