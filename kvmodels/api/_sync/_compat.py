"""Run flows, locks and workers with threads; ``api/_async/_compat.py`` defines the same names for asyncio.

Rules of this module: both modules define the same names, so that all other facades have one source. Nothing here
depends on the content of a flow.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, TypeVar

from kvmodels._support.naming import short_repr
from kvmodels.api.blobs.store import BlobStore
from kvmodels.api.core import DatabaseCore, ObservedModel
from kvmodels.api.opening import Opening
from kvmodels.core.operations import Entry
from kvmodels.engines.contract import Engine, Snapshot
from kvmodels.engines.shared.threads import start_thread
from kvmodels.errors import EngineError, InvalidArgumentError, InvalidValueError, KvModelsError
from kvmodels.flows.context import Context
from kvmodels.flows.describe import kv_views
from kvmodels.flows.describe import preview as previews
from kvmodels.flows.effects import AnyFlow
from kvmodels.flows.kv.operations import Listing
from kvmodels.flows.writing import operation
from kvmodels.frames import layouts, streams
from kvmodels.query.query import Query
from kvmodels.runtime import sync
from kvmodels.runtime.observing import observation as observing
from kvmodels.schema.definition.definition import ModelSchema

T = TypeVar("T")

run = sync.run
release_writes = sync.release_writes
run_after = operation.run_after
current_worker = threading.current_thread
engine_of = Opening.open

Mutex = threading.RLock
StoreSnapshot = Snapshot
Worker = threading.Thread


def perform(
    engine: Engine,
    flow: AnyFlow[T],
    observation: observing.Observation | None,
    *,
    snapshot: StoreSnapshot | None = None,
) -> T:
    """Run the flow of a method to its end, report its observation if there is one, and return its result."""
    if observation is None:
        return sync.run(engine, flow, snapshot=snapshot)
    with observation:
        return sync.run(engine, observation.through(flow), snapshot=snapshot)


def blob_home(opening: Opening) -> BlobStore:
    """Return the object that opens the blobs of a database, and sweeps them in the background."""

    def sweep(flow: AnyFlow[int]) -> None:
        with contextlib.suppress(KvModelsError):  # the store was closed meanwhile; the next sweep continues
            run(opening.open(), flow)

    def start(flow: AnyFlow[int]) -> None:
        with contextlib.suppress(EngineError):  # no thread can be started
            start_worker(partial(sweep, flow), "kvmodels-blobs")

    return BlobStore(lambda flow: run(opening.open(), flow), is_async=False, start=start, in_thread=in_thread)


def open_eagerly(open_: Callable[[], object]) -> None:
    """Open the new object in its constructor, which raises any error."""
    open_()


def close_store(opening: Opening) -> None:
    """Close the engine, and refuse to open it again."""
    if opening.engine is None:
        opening.close()
    else:
        opening.engine.close()


def pin(engine: Engine) -> Snapshot:
    """Return a snapshot of the engine."""
    return engine.snapshot()


def release(_: Engine, snapshot: Snapshot) -> None:
    """Close a snapshot."""
    snapshot.close()


def pin_for_long(engine: Engine) -> Snapshot:
    """Return a snapshot without a maximum age, for a read of the library itself, however long it takes."""
    snapshot = engine.snapshot()
    snapshot.keep()
    return snapshot


@contextlib.contextmanager
def pinned(engine: Engine) -> Generator[Snapshot | None]:
    """Hold a snapshot of the engine, however long; None if it has no snapshots."""
    if not engine.capabilities.traits.snapshots:
        yield None
        return
    with contextlib.closing(pin_for_long(engine)) as snapshot:
        yield snapshot


def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that may block, in this thread, because a thread may block."""
    return function(*arguments)


def run_to_end(make: Callable[[], T]) -> T:
    """Run a cleanup function to its end; after an interrupt run it again, then raise the interrupt.

    A second call of ``make`` does not repeat effects of the first one.
    """
    try:
        return make()
    except Exception:
        raise
    except BaseException:
        with contextlib.suppress(KvModelsError):
            make()
        raise


def previewed(
    source: previews.HasContext, query: Query, read: Callable[[Context], previews.Preview]
) -> previews.Preview:
    """Return the preview of a query for a notebook; in a transaction, nothing is read."""
    try:
        context = source.context
        if context.transaction is not None:
            return previews.unread(source, query, previews.NOT_IN_TRANSACTION)
        return read(context)
    except KvModelsError as error:
        return previews.failed(error)


def first_entries(fetch: Callable[[Listing], object], listing: Listing) -> tuple[list[Entry] | None, str]:
    """Return the first entries of a listing for a notebook, or None and the reason."""
    try:
        beginning = listing.first(kv_views.ENTRIES_SHOWN + 1)
        fetch(beginning)
        return kv_views.taken(beginning), ""
    except KvModelsError as error:
        return None, previews.reason_of(error)


class ModelRunner(ObservedModel):
    """Runs the flows of one repository of a database."""

    def __init__(self, opening: Opening, core: DatabaseCore, schema: ModelSchema) -> None:
        super().__init__(opening, core, schema)
        self._engine = opening.open()
        self.context = core.context

    def run(self, verb: str, flow: AnyFlow[T], query: Query | None = None) -> T:
        """Run the flow of a method to its end, report it to the observers, and return its result."""
        if self._opening.reporters:
            return perform(self._engine, flow, self.observation(verb, query))
        return sync.run(self._engine, flow)

    def run_part(self, flow: AnyFlow[T], observation: observing.Observation | None) -> T:
        """Run one of the flows of a method to its end, and return its result."""
        return sync.run(self._engine, observing.through(observation, flow))


class Event(threading.Event):
    """An event with a time limit for waiting."""

    def wait_for(self, seconds: float) -> bool:
        """Wait until the event is set or the time is up, and return whether it is set."""
        return self.wait(seconds)


def from_any_thread(function: Callable[[], object]) -> Callable[[], object]:
    """Return the function unchanged: any thread may call it."""
    return function


def start_worker(
    function: Callable[[], None],
    name: str,
    *,
    url: str | None = None,
    ended: Callable[[], object] | None = None,
) -> Worker:
    """Run a function in a separate thread, which calls ``ended`` at its end; an error of the start names ``url``."""

    def work() -> None:
        try:
            function()
        finally:
            if ended is not None:
                ended()

    thread = threading.Thread(target=work, name=name, daemon=True)
    start_thread(thread, url)
    return thread


def join_worker(worker: Worker, seconds: float | None = None) -> bool:
    """Wait until a worker has ended or the time is up, and return whether it has ended."""
    worker.join(seconds)
    return not worker.is_alive()


def for_each(items: Iterable[T], work: Callable[[T], object], concurrency: int) -> None:
    """Call a function with every item, in several threads; after the first error no other item is begun."""
    waiting, lock, failed = list(items)[::-1], threading.Lock(), list[BaseException]()

    def work_on() -> None:
        while not failed:
            with lock:
                if not waiting:
                    return
                item = waiting.pop()
            try:
                work(item)
            except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the caller
                failed.append(error)

    workers = [start_worker(work_on, "kvmodels tenants") for _ in range(min(concurrency, len(waiting)) - 1)]
    try:
        work_on()
    except BaseException as error:
        failed.append(error)
        raise
    finally:
        for worker in workers:
            worker.join()
    if failed:
        raise failed[0]


def is_being_cancelled() -> bool:
    """Return False, because a thread cannot be cancelled."""
    return False


def require_handler(handler: Callable[..., object], engine: Engine | None) -> None:
    """Refuse a coroutine function as a message handler, and a closed store."""
    if inspect.iscoroutinefunction(handler):
        raise InvalidArgumentError(
            "async handlers are not supported here",
            argument="handler",
            value=handler.__name__,
            hint="Use open_async_kv, or give a plain function.",
        )
    if engine is not None:
        engine.now_ms()  # raises if the engine was closed


def call_handler(handler: Callable[[Any], object], message: Any) -> None:
    """Call the handler of a message, and refuse a coroutine that it returns."""
    result = handler(message)
    if inspect.iscoroutine(result):
        result.close()
        raise InvalidValueError(
            "the handler returned a coroutine, which is not awaited here",
            type="coroutine",
            hint="Use open_async_kv, or give a plain function.",
        )


def require_hook(function: Callable[[], object]) -> None:
    """Refuse a coroutine function, which a commit could not await. Raises InvalidArgumentError."""
    if inspect.iscoroutinefunction(function):
        raise InvalidArgumentError(
            "async functions are not supported here",
            argument="function",
            value=getattr(function, "__name__", short_repr(function)),
            hint="Give a plain function, or use an AsyncDatabase.",
        )


def require_transactional(function: Callable[..., object]) -> None:
    """Refuse a function that cannot be a transaction. Raises InvalidArgumentError."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidArgumentError(
            "a transaction cannot outlive the call of its function",
            argument="function",
            value=getattr(function, "__name__", short_repr(function)),
            hint="Decorate a plain function; a coroutine function with transactional() of an AsyncDatabase.",
        )


def require_per_tenant(function: Callable[..., object]) -> None:
    """Refuse a coroutine function, which would not be awaited. Raises InvalidArgumentError."""
    if inspect.iscoroutinefunction(function) or not callable(function):
        raise InvalidArgumentError(
            "each tenant needs a plain function here",
            argument="function",
            value=getattr(function, "__name__", short_repr(function)),
            hint="Give a function of the database of a tenant; a coroutine function to an AsyncDatabase.",
        )


class ArrowStream:
    """The C interface of Arrow, by which other tools read results as a table."""

    __slots__ = ()

    @abstractmethod
    def _streamed(self) -> tuple[layouts.TableLayout, Generator[Any]]:
        """Return the columns of the table and its batches."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a stream of all results, in batches; polars, pandas, DuckDB and pyarrow call it."""
        return streams.capsule(*self._streamed(), requested_schema)
