"""One simulated process of an interleaving: its declarations, its cached header and its transactions.

Rules of this module: the interface is that of ``AsyncDatabase``. A coroutine that uses it yields the requests of the
real flows to its driver, and needs no event loop. Reads of a transaction come from its snapshot, as in a driver, but
each is still one step, so that other clients may run between two reads.
"""

from __future__ import annotations

import random
import types
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from kvmodels.api._async.database import AsyncRepositories
from kvmodels.api._async.repository import AsyncRepository
from kvmodels.api._async.transaction import (
    AsyncDecorator,
    AsyncSession,
    AsyncTransaction,
    AsyncTransactionBlock,
    AsyncTransactions,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.api.scope import Scope, Store
from kvmodels.catalog.evolution import SchemaPlan
from kvmodels.codecs.sealing.key_ring import KeyRing
from kvmodels.engines.contract import Engine, Snapshot
from kvmodels.flows.check.findings import CheckReport
from kvmodels.flows.check.scrub import Repair
from kvmodels.flows.context import Context
from kvmodels.flows.effects import AnyFlow, CountRows, Flow, Read, ReadPresent, Request, sleep, steps_of
from kvmodels.flows.evolution.apply import SchemaReport
from kvmodels.flows.evolution.build import BuildReport
from kvmodels.flows.evolution.migrate import MigrationReport
from kvmodels.flows.evolution.throttle import UNPACED
from kvmodels.flows.retry_policy import RetryPolicy
from kvmodels.flows.transaction.transaction import serve
from kvmodels.query.query import Query
from kvmodels.runtime.observing.observation import Observation
from kvmodels.runtime.sync import perform
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.testing.schedules import VirtualTime

K = TypeVar("K", bound=AsyncRepository[Any])
T = TypeVar("T")


class InterleavedSession(AsyncSession):
    """A transaction whose requests are answered by the driver of the client."""

    async def perform(self, flow: Flow[T]) -> T:
        """Run a flow of the transaction itself, in its snapshot."""
        snapshot, engine = cast("Snapshot | None", self._snapshot), self.store.engine
        return await _requests(flow if snapshot is None else serve(flow, partial(_read_in, engine, snapshot)))

    async def _pinned(self) -> Snapshot:
        return self.store.engine.snapshot()

    async def _send(self, flow: Flow[T]) -> T:
        return await _requests(flow)

    async def _release(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            cast("Snapshot", snapshot).close()


def _read_in(engine: Engine, snapshot: Snapshot, request: Request) -> Flow[Any]:
    """Yield a request as one step, and answer a read from a snapshot."""
    answer = yield request
    is_of_snapshot = isinstance(request, Read | CountRows) and not isinstance(request, ReadPresent)
    return perform(engine, request, snapshot) if is_of_snapshot else answer


class InterleavedTransactions(AsyncTransactions):
    """The transactions of the clients of one process; they never join each other."""

    def __init__(self, store: Callable[[], Awaitable[Store]]) -> None:
        super().__init__(store)
        # One client may be between two steps of a transaction when another client of the process begins one.
        self._scope: Scope[AsyncTransaction] = Scope(object)

    async def _begin(self, attempt: int) -> AsyncSession:
        return InterleavedSession(await self._store(), attempt)

    async def _run(self, engine: Engine, flow: Flow[None]) -> None:  # noqa: ARG002 - waits in virtual time
        await _requests(flow)


class World(NamedTuple):
    """The store and the clock that all processes of an interleaving share."""

    engine: Engine
    time: VirtualTime


class Process(AsyncRepositories):
    """One process of an interleaving: the database of its clients.

    Created by ``Interleaving.process``. Two clients of one process share its cached header, as two tasks do.

    Args:
        name: used in tokens and histories.
        models: the classes that this process declares; another process may declare other classes for the same
            collection.
        retry: the retry policy of every write.
        world: the store for snapshots, and the clock of the retry loop.
        keys: the keys of encrypted fields.

    Attributes:
        core: the declarations and the flows of the life cycle.
        tokens: every token that this process has generated, in order; empty if no answer can be lost.
    """

    __slots__ = ("_engine", "_transactions", "core", "name", "tokens")

    def __init__(
        self,
        name: str,
        models: tuple[type[KvModel], ...],
        retry: RetryPolicy,
        world: World,
        keys: KeyRing | None = None,
    ) -> None:
        self.name = name
        self._engine = world.engine
        time = world.time
        self.tokens: list[str] = []
        self._repositories = {}
        self.core = DatabaseCore(
            models,
            retry=retry,
            new_token=self._new_token,
            monotonic=time.seconds,
            uniform=random.Random(name).random,
            keys=keys,
            random_bytes=random.Random(name).randbytes,
        )
        self._transactions = InterleavedTransactions(self._store)

    async def _store(self) -> Store:
        return Store(self._engine, self.core.context, self.core.form, self.core.view_for)

    def transaction(self) -> AsyncTransactionBlock:
        """Begin a transaction of one client; nested blocks are separate transactions."""
        return self._transactions.block()

    def transactional(self, retries: int | None = None) -> AsyncDecorator:
        """Decorate a function to run again after a conflict, in virtual time."""
        return self._transactions.decorator(retries)

    def _new_token(self) -> str:
        self.tokens.append(f"{self.name}-{len(self.tokens) + 1}")
        return self.tokens[-1]

    @property
    def context(self) -> Context:
        """The context of the flows of this process; its cached header is ``context.view``."""
        return self.core.context

    def schema(self, model: type[KvModel]) -> ModelSchema:
        """Return the compiled declaration of the collection of a model."""
        return self.core.schema_for(model)

    def _new_repository(self, kind: type[K], model: type[Any]) -> K:
        return kind(_StepRunner(self.core.context, self.core.view_for(model)))

    async def run(self, flow: AnyFlow[T]) -> T:
        """Run any flow of the library."""
        return await _requests(flow)

    async def build_indexes(self, *models: type[KvModel]) -> tuple[BuildReport, ...]:
        """Build every declared index that is not ready."""
        return await _requests(self.core.build_indexes(models))

    async def plan(self, *models: type[KvModel]) -> SchemaPlan:
        """Compare the models with the store."""
        return await _requests(self.core.plan(models))

    async def apply(self, *models: type[KvModel], allow: Iterable[str] = ()) -> SchemaReport:
        """Bring the store in line with the models."""
        return await _requests(self.core.apply(models, allow, UNPACED))

    async def migrate(self, model: type[KvModel], *, forget: Iterable[str] = ()) -> MigrationReport:
        """Rewrite every record of an older schema version."""
        return await _requests(self.core.migrate(model, forget, UNPACED))

    async def drop_index(self, model: type[KvModel], name: str) -> bool:
        """Drop an index with all its entries."""
        return await _requests(self.core.drop_index(model, name))

    async def check(self, model: type[KvModel] | None = None, *, repair: Repair = False) -> CheckReport:
        """Check that index entries and counters match the records exactly.

        Counters are compared only if no other commit happens meanwhile, as on an engine without snapshots.
        """
        report = await _requests(self.core.check(model, repair))
        for counting in self.core.recounts(model):
            report = await _requests(self.core.settle(report, await _requests(counting), repair))
        return report

    async def outcome(self, token: str) -> bool:
        """Find out whether a write was applied whose answer was lost."""
        return await _requests(self.core.outcome(token))

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time, 0 or more seconds."""
        await _requests(sleep(seconds))


class _StepRunner:
    """Runs the flows of one repository by yielding their requests."""

    def __init__(self, context: Context, schema: ModelSchema) -> None:
        self.context = context
        self.schema = schema

    async def run(self, verb: str, flow: AnyFlow[T], query: Query | None = None) -> T:  # noqa: ARG002 - unobserved
        return await _requests(flow)

    def observation(self, verb: str, query: Query | None = None, *, streamed: bool = False) -> None:
        """Return None: the clients of an interleaving have no observers."""

    async def run_part(self, flow: AnyFlow[T], observation: Observation | None) -> T:  # noqa: ARG002 - unobserved
        return await _requests(flow)


@types.coroutine
def _requests(flow: AnyFlow[T]) -> Generator[Request, Any, T]:
    return (yield from steps_of(flow))
