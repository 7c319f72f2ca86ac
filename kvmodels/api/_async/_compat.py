"""Run flows, locks and workers with asyncio; ``api/_sync/_compat.py`` defines the same names for threads.

Rules of this module: both modules define the same names, so that all other facades have one source. Nothing here
depends on the content of a flow.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, NoReturn, TypeAlias, TypeVar

from kvmodels._support.naming import short_repr
from kvmodels.api.blobs.store import BlobStore
from kvmodels.api.core import ObservedModel
from kvmodels.api.opening import Opening
from kvmodels.engines.contract import AsyncSnapshot, Engine, Snapshot
from kvmodels.errors import EngineError, InvalidArgumentError, KvModelsError, UnsupportedError
from kvmodels.flows.context import Context
from kvmodels.flows.describe import preview as previews
from kvmodels.flows.effects import AnyFlow
from kvmodels.flows.kv.operations import Listing
from kvmodels.flows.writing import operation
from kvmodels.query.query import Query
from kvmodels.runtime import event_loop
from kvmodels.runtime.observing import observation as observing

T = TypeVar("T")

run = event_loop.arun
pin = event_loop.apin
release = event_loop.arelease
release_writes = event_loop.arelease_writes
in_thread = event_loop.in_thread
run_to_end = event_loop.run_to_end
current_worker = asyncio.current_task

Mutex = asyncio.Lock
StoreSnapshot: TypeAlias = Snapshot | AsyncSnapshot
Worker: TypeAlias = "asyncio.Task[None]"


def perform(
    engine: Engine,
    flow: AnyFlow[T],
    observation: observing.Observation | None,
    *,
    snapshot: StoreSnapshot | None = None,
) -> Coroutine[Any, Any, T]:
    """Run the flow of a method to its end, report its observation if there is one, and return its result."""
    # Not awaited here: a thousand waiting tasks would keep a thousand more coroutines.
    if observation is None:
        return run(engine, flow, snapshot=snapshot)
    return _observed(engine, flow, observation, snapshot)


async def _observed(
    engine: Engine, flow: AnyFlow[T], observation: observing.Observation, snapshot: StoreSnapshot | None
) -> T:
    with observation:
        return await run(engine, observation.through(flow), snapshot=snapshot)


def open_eagerly(_: Callable[[], object]) -> None:
    """Leave the new object closed; its first ``await`` opens it."""


async def engine_of(opening: Opening) -> Engine:
    """Return the engine; if it is not open yet, open it in a thread.

    If the task is cancelled meanwhile, the thread finishes opening the engine, and ``opening`` owns it.
    """
    engine = opening.engine
    return await in_thread(opening.open) if engine is None else engine


def blob_home(opening: Opening) -> BlobStore:
    """Return the object that opens the blobs of a database, and sweeps them in the background."""

    async def sweep(flow: AnyFlow[int]) -> None:
        with contextlib.suppress(KvModelsError):  # the store was closed meanwhile; the next sweep continues
            await run(opening.open(), flow)

    def start(flow: AnyFlow[int]) -> None:
        with contextlib.suppress(EngineError):  # no thread can be started
            start_worker(partial(sweep, flow), "kvmodels-blobs")

    return BlobStore(lambda flow: run(opening.open(), flow), is_async=True, start=start, in_thread=in_thread)


async def close_store(opening: Opening) -> None:
    """Close the engine without blocking the event loop, and refuse to open it again."""
    engine = opening.engine
    if engine is not None:
        await event_loop.aclose(engine)
        return
    try:
        await in_thread(opening.close)  # waits for another task that is opening it
    except EngineError:
        opening.close()


async def pin_for_long(engine: Engine) -> StoreSnapshot:
    """Return a snapshot without a maximum age, for a read of the library itself, however long it takes."""
    snapshot = await pin(engine)
    snapshot.keep()
    return snapshot


@contextlib.asynccontextmanager
async def pinned(engine: Engine) -> AsyncGenerator[StoreSnapshot | None]:
    """Hold a snapshot of the engine, however long; None if it has no snapshots."""
    if not engine.capabilities.traits.snapshots:
        yield None
        return
    snapshot = await pin_for_long(engine)
    try:
        yield snapshot
    finally:
        await release(engine, snapshot)


def previewed(
    source: previews.HasContext, query: Query, _: Callable[[Context], Coroutine[Any, Any, previews.Preview]]
) -> previews.Preview:
    """Return a preview without reading: a notebook asks for it outside of coroutines."""
    note = "Not read: only a coroutine can read. Write `await query[:10].to_list()`."
    return previews.unread(source, query, note)


def first_entries(_: Callable[[Listing], object], __: Listing) -> tuple[None, str]:
    """Return no entries, and why: a notebook asks for them outside of coroutines."""
    return None, "Not read: only a coroutine can read. Write `[entry async for entry in kv.list(...)]`."


class AsyncModelRunner(ObservedModel):
    """Runs the flows of one repository of a database."""

    @property
    def context(self) -> Context:
        """The context of the flows."""
        return self._core.context

    def run(self, verb: str, flow: AnyFlow[T], query: Query | None = None) -> Coroutine[Any, Any, T]:
        """Run the flow of a method to its end, report it to the observers, and return its result."""
        opening = self._opening
        if not opening.reporters:
            return run(opening.open(), flow)
        return perform(opening.open(), flow, self.observation(verb, query))

    def run_part(self, flow: AnyFlow[T], observation: observing.Observation | None) -> Coroutine[Any, Any, T]:
        """Run one of the flows of a method to its end, and return its result."""
        return run(self._opening.open(), observing.through(observation, flow))


class AsyncEvent(asyncio.Event):
    """An event with a time limit for waiting."""

    async def wait_for(self, seconds: float) -> bool:
        """Wait until the event is set or the time is up, and return whether it is set."""
        await event_loop.wait_until(self, seconds)
        return self.is_set()


def from_any_thread(function: Callable[[], object]) -> Callable[[], None]:
    """Return a function that any thread may call to run ``function`` in this event loop."""
    loop = asyncio.get_running_loop()

    def call() -> None:
        with contextlib.suppress(RuntimeError):  # a closed loop refuses the call, but then no task waits in it
            loop.call_soon_threadsafe(function)

    return call


def start_worker(
    function: Callable[[], Coroutine[Any, Any, None]],
    name: str,
    *,
    url: str | None = None,  # noqa: ARG001 - of the store, for the error of a thread that does not start
    ended: Callable[[], object] | None = None,
) -> Worker:
    """Run a function in a task; ``ended`` is called at its end, even if the task was cancelled before it began."""
    task = asyncio.get_running_loop().create_task(function(), name=name)
    if ended is not None:
        task.add_done_callback(lambda _: ended())
    return task


async def join_worker(worker: Worker, seconds: float | None = None) -> bool:
    """Wait until a worker has ended or the time is up, and return whether it has ended."""
    await asyncio.wait((worker,), timeout=seconds)
    return worker.done()


async def for_each(items: Iterable[T], work: Callable[[T], Coroutine[Any, Any, object]], concurrency: int) -> None:
    """Call a coroutine function with every item, in several tasks; the first error cancels the others."""
    waiting = iter(items)

    async def work_on() -> None:
        for item in waiting:
            await work(item)

    tasks = [asyncio.ensure_future(work_on()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def is_being_cancelled() -> bool:
    """Return whether the running task is being cancelled: the loop shuts down, and nothing may be awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def require_handler(_: Callable[..., object], __: Engine | None) -> None:
    """Check that a message handler can be called from here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UnsupportedError(
            "no event loop is running", reason="listen", hint="Call listen inside a coroutine."
        ) from None


async def call_handler(handler: Callable[[Any], object], message: Any) -> None:
    """Call the handler of a message, a coroutine function or a plain one."""
    result = handler(message)
    if inspect.isawaitable(result):
        await result


def require_hook(_: Callable[[], object]) -> None:
    """Accept any function as a callback after a commit; coroutine functions are awaited."""


def require_transactional(function: Callable[..., object]) -> None:
    """Refuse a function that cannot be a transaction. Raises InvalidArgumentError."""
    if not inspect.iscoroutinefunction(function):
        raise InvalidArgumentError(
            "a transaction of an asynchronous database needs a coroutine function",
            argument="function",
            value=getattr(function, "__name__", short_repr(function)),
            hint="Decorate an 'async def' that returns its result; a plain function with Database.transactional().",
        )


def require_per_tenant(function: Callable[..., object]) -> None:
    """Refuse a function that cannot be called for each tenant. Raises InvalidArgumentError."""
    if not inspect.iscoroutinefunction(function):
        raise InvalidArgumentError(
            "an asynchronous database calls a coroutine function for each tenant",
            argument="function",
            value=getattr(function, "__name__", short_repr(function)),
            hint="Give an 'async def' of the database of a tenant.",
        )


async def run_after(functions: Iterable[Callable[[], object]]) -> None:
    """Call functions after a commit, and await coroutines; raise their errors after all were called."""
    failed: list[Callable[[], object]] = []
    for function in functions:
        try:
            returned = function()
            if inspect.isawaitable(returned):
                await returned
        except Exception as error:  # noqa: BLE001 - functions of the user raise anything; it is raised below
            failed.append(partial(_raise, error))
    operation.run_after(failed)


def _raise(error: Exception) -> NoReturn:
    raise error


class ArrowStream:
    """In place of the C interface of Arrow, whose readers cannot await."""

    __slots__ = ()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Refuse to be read by a tool that cannot await."""
        del requested_schema
        raise UnsupportedError(
            "a tool that reads Arrow streams cannot await",
            reason="__arrow_c_stream__",
            hint="Write await query.to_arrow(), to_polars() or to_pandas(), and give the tool that.",
        )
