"""One simulated process: its own declarations and its own cached header over a store that others use as well.

Rules of this module: the interface is that of ``AsyncDatabase``; a coroutine that uses it yields the requests of
the real flows to whoever drives it, and needs no event loop.
"""

from __future__ import annotations

import random
import types
from collections.abc import Generator, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kvmodels.database_core import DatabaseCore
from kvmodels.engines.base import Engine
from kvmodels.flows import fetch
from kvmodels.flows.build import BuildReport
from kvmodels.flows.context import Context
from kvmodels.flows.findings import CheckReport
from kvmodels.flows.migrate import MigrationReport
from kvmodels.flows.pace import UNPACED
from kvmodels.flows.plan_apply import SchemaReport
from kvmodels.flows.requests import AnyFlow, Request, sleep, steps_of
from kvmodels.flows.retrying import RetryPolicy
from kvmodels.flows.scrub import Repair
from kvmodels.repository_async import AsyncRepository
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.evolution import SchemaPlan
from kvmodels.schema.model import KvModel
from kvmodels.testing.transactions import InterleavedSession
from kvmodels.testing.virtual_time import VirtualTime
from kvmodels.transaction_async import AsyncDecorator, AsyncTransactionBlock, AsyncTransactions
from kvmodels.transaction_scope import Scope, Store

__all__ = ["Process", "World"]

M = TypeVar("M", bound=KvModel)
T = TypeVar("T")


class World(NamedTuple):
    """What all processes of an interleaving live in."""

    engine: Engine
    time: VirtualTime


class Process:
    """What one process knows of the store, as the database of its clients.

    Made by ``Interleaving.process``. Two clients of one process share its cached header, as two tasks do.

    Args:
        name: for tokens and stories.
        models: the classes that this process declares; another process may declare others of the same collection.
        retry: for every write.
        world: the store, for snapshots, and where the retry loop looks at the clock.

    Attributes:
        tokens: every token that this process has drawn, in order; empty where no answer can be lost.
    """

    __slots__ = ("_core", "_engine", "_repositories", "_transactions", "name", "tokens")

    def __init__(self, name: str, models: tuple[type[KvModel], ...], retry: RetryPolicy, world: World) -> None:
        self.name = name
        self._engine = world.engine
        time = world.time
        self.tokens: list[str] = []
        self._repositories: dict[type[KvModel], AsyncRepository[Any]] = {}
        self._core = DatabaseCore(
            models,
            retry=retry,
            readonly=False,
            must_be_current=False,
            new_token=self._new_token,
            monotonic=time.seconds,
            uniform=random.Random(name).random,
        )

        # A client may stand between two steps of a transaction when another one of this process begins its own.
        self._transactions = AsyncTransactions(
            self._store,
            session=partial(InterleavedSession, pin=self._engine.snapshot),
            scope=Scope(object),
            sleep=self.sleep,
        )

    async def _store(self) -> Store:
        return Store(self._engine, self._core.context, self._core.form, self._core.view_for)

    def transaction(self) -> AsyncTransactionBlock:
        """A transaction of one client; a block inside of it is one of its own."""
        return self._transactions.block()

    def transactional(self, retries: int = 10) -> AsyncDecorator:
        """A function that is run again after a conflict, in virtual time."""
        return self._transactions.decorator(retries)

    def _new_token(self) -> str:
        self.tokens.append(f"{self.name}-{len(self.tokens) + 1}")
        return self.tokens[-1]

    @property
    def core(self) -> DatabaseCore:
        """Declarations and the flows of the life cycle."""
        return self._core

    @property
    def context(self) -> Context:
        """What the flows of this process share; its cached header is ``context.view``."""
        return self._core.context

    def schema(self, model: type[KvModel]) -> ModelSchema:
        """The compiled declaration of the collection of a model."""
        return self._core.schema_for(model)

    def __getitem__(self, model: type[M]) -> AsyncRepository[M]:
        if model not in self._repositories:
            self._repositories[model] = AsyncRepository(_Runner(self._core.context, self._core.view_for(model)))
        return self._repositories[model]

    async def run(self, flow: AnyFlow[T]) -> T:
        """Run any flow of the library."""
        return await _requests(flow)

    async def build_indexes(self, *models: type[KvModel]) -> tuple[BuildReport, ...]:
        """Build every declared index that is not ready."""
        return await _requests(self._core.build_indexes(models))

    async def plan(self, *models: type[KvModel]) -> SchemaPlan:
        """Compare the models with the store."""
        return await _requests(self._core.plan(models))

    async def apply(self, *models: type[KvModel], allow: Iterable[str] = ()) -> SchemaReport:
        """Bring the store in line with the models."""
        return await _requests(self._core.apply(models, allow, UNPACED))

    async def migrate(self, model: type[KvModel], *, forget: Iterable[str] = ()) -> MigrationReport:
        """Rewrite every record of an older schema version."""
        return await _requests(self._core.migrate(model, forget, UNPACED))

    async def drop_index(self, model: type[KvModel], name: str) -> bool:
        """Drop an index with all its entries."""
        return await _requests(self._core.drop_index(model, name))

    async def check(self, model: type[KvModel] | None = None, *, repair: Repair = False) -> CheckReport:
        """Check that every index entry and counter equals f(records) and the reverse.

        Counters are compared only if nobody commits anything meanwhile, as on an engine without snapshots.
        """
        report = await _requests(self._core.check(model, repair))
        for counting in self._core.recounts(model):
            report = await _requests(self._core.settle(report, await _requests(counting), repair))
        return report

    async def outcome(self, token: str) -> bool:
        """Find out how a write ended whose answer was lost."""
        return await _requests(self._core.outcome(token))

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time; 0 or more seconds."""
        await _requests(sleep(seconds))


class _Runner:
    """Runs the flows of one repository by yielding their requests."""

    __slots__ = ("context", "schema")

    def __init__(self, context: Context, schema: ModelSchema) -> None:
        self.context = context
        self.schema = schema

    async def get(self, arguments: tuple[Any, ...], lookups: Mapping[str, Any], /) -> Any:
        return await _requests(fetch.get(self.context, self.schema, arguments, lookups))

    async def run(self, flow: AnyFlow[T]) -> T:
        return await _requests(flow)


@types.coroutine
def _requests(flow: AnyFlow[T]) -> Generator[Request, Any, T]:
    return (yield from steps_of(flow))
