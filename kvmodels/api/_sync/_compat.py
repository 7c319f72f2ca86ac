"""Run flows, locks and workers with threads; ``api/_async/_compat.py`` has the same names for asyncio.

Rules of this module: both modules define the same names, so that every other facade is written once. Nothing here
knows what a flow does.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, TypeVar

from kvmodels.api.core import DatabaseCore
from kvmodels.api.opening import Opening
from kvmodels.engines.contract import Engine, Snapshot
from kvmodels.engines.shared.threads import start_thread
from kvmodels.errors import InvalidArgumentError, InvalidValueError, KvModelsError
from kvmodels.flows.reading import lookup
from kvmodels.flows.writing import operation
from kvmodels.runtime import sync
from kvmodels.schema.definition.definition import ModelSchema

T = TypeVar("T")

run = sync.run
release_writes = sync.release_writes
run_after = operation.run_after

Mutex = threading.RLock
StoreSnapshot = Snapshot
Worker = threading.Thread


def open_eagerly(open_: Callable[[], object]) -> None:
    """Open an object in its constructor, which so raises what is wrong."""
    open_()


def engine_of(opening: Opening) -> Engine:
    """Return the engine, opened if it is not open yet."""
    return opening.engine or opening.open()


def close_store(opening: Opening) -> None:
    """Close the engine, and open it no more."""
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


@contextlib.contextmanager
def pinned(engine: Engine) -> Generator[Snapshot | None]:
    """Hold a snapshot of the engine; None if it has no snapshots."""
    if not engine.capabilities.traits.snapshots:
        yield None
        return
    with contextlib.closing(engine.snapshot()) as snapshot:
        yield snapshot


def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that may block: here, since a thread may be blocked."""
    return function(*arguments)


def run_to_end(make: Callable[[], T]) -> T:
    """Run a function that cleans up to its end; after an interrupt from its beginning, before that is raised.

    A second call of ``make`` changes nothing that the first one has done.
    """
    try:
        return make()
    except Exception:
        raise
    except BaseException:
        with contextlib.suppress(KvModelsError):
            make()
        raise


class ModelRunner:
    """Runs the flows of one repository of a database."""

    __slots__ = ("_engine", "context", "run", "schema")

    def __init__(self, opening: Opening, core: DatabaseCore, schema: ModelSchema) -> None:
        self._engine = opening.open()
        self.context = core.context
        self.run = partial(sync.run, self._engine)  # a method would be one more call for every read
        self.schema = schema

    def get(self, arguments: tuple[Any, ...], lookups: Mapping[str, Any], /) -> Any:
        """Run ``lookup.get`` to its end."""
        return sync.run(self._engine, lookup.get(self.context, self.schema, arguments, lookups))


class Event(threading.Event):
    """An event to wait for with a time limit."""

    def wait_for(self, seconds: float) -> bool:
        """Wait until it is set, and return whether it is."""
        return self.wait(seconds)


def from_any_thread(function: Callable[[], object]) -> Callable[[], object]:
    """Return a function that any thread may call: this one."""
    return function


def start_worker(
    function: Callable[[], None],
    name: str,
    *,
    url: str | None = None,
    ended: Callable[[], object] | None = None,
) -> Worker:
    """Run a function in a thread of its own, which calls ``ended`` at its end; an error names ``url``.

    Raises:
        EngineError: the thread could not be started.
    """

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
    """Wait until a worker has ended, and return whether it has."""
    worker.join(seconds)
    return not worker.is_alive()


def current_worker() -> Worker:
    """Return the running thread."""
    return threading.current_thread()


def is_being_cancelled() -> bool:
    """Return False: a thread is not cancelled."""
    return False


def require_handler(handler: Callable[[Any], object], engine: Engine | None) -> None:
    """Check that a handler of messages can be called from here.

    Raises:
        InvalidArgumentError: it is a coroutine function.
        ClosedError: the store is closed.
    """
    if inspect.iscoroutinefunction(handler):
        raise InvalidArgumentError(
            "async handlers are not supported here",
            argument="handler",
            value=handler.__name__,
            hint="Use open_async_kv, or give a plain function.",
        )
    if engine is not None:
        engine.now_ms()  # a closed engine does not tell the time


def call_handler(handler: Callable[[Any], object], message: Any) -> None:
    """Call the handler of a message, a plain function.

    Raises:
        InvalidValueError: it returns a coroutine.
    """
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
            value=getattr(function, "__name__", repr(function)),
            hint="Give a plain function, or use an AsyncDatabase.",
        )


def require_transactional(function: Callable[..., object]) -> None:
    """Refuse a function that cannot be a transaction. Raises InvalidArgumentError."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidArgumentError(
            "a transaction cannot outlive the call of its function",
            argument="function",
            value=getattr(function, "__name__", repr(function)),
            hint="Decorate a plain function; a coroutine function with transactional() of an AsyncDatabase.",
        )
