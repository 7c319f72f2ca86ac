"""The environment of one LMDB folder: when it is opened, made larger and closed, and who reads in it meanwhile.

LMDB allows an environment once in a process, and no transaction may be open in this process while its map is made
larger, or taken over at the size that another process gave it. So calls that read are counted, and what needs the
environment for itself takes it away from those that come, waits for those that run, and gives it back.

Rules of this module: locks are taken in the order ``write_lock``, ``_gate``, the writer's lock of the file; a call that
reads takes none. Before a fork everything is closed, and opened again when it is needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final, TypeVar, cast

import lmdb

from kvmodels.core.operations import Follow, Guard, PredictedFollow, ReadRange, ReadResult, Row
from kvmodels.engines.lmdb import file as lmdb_file
from kvmodels.engines.lmdb.file import STATE_KEY, VERSION, Databases, OpenEnvironment, State, translated
from kvmodels.engines.lmdb.lock import WriterLock
from kvmodels.engines.lmdb.rows import ZEROS, Transaction, unpacked
from kvmodels.engines.shared.file_checks import FileIdentity, file_identity, replaced
from kvmodels.engines.shared.file_engine import FileOptions, FileStore
from kvmodels.engines.shared.waiting import Backoff
from kvmodels.errors import DecodeError, KvModelsError, StorageFullError

T = TypeVar("T")

_result: Final[Callable[[type[ReadResult], tuple[Any, ...]], ReadResult]] = cast("Any", tuple).__new__

DRAIN_PAUSE_S: Final = 0.000_2

GROWTH: Final = 2
"""The map is made so many times larger: it costs address space and no disk."""


def with_room(environment: lmdb.Environment, work: Callable[[lmdb.Environment], T]) -> T:
    """Do ``work`` on an environment that is not shared yet, and enlarge its map as needed."""
    while True:
        try:
            return work(environment)
        except lmdb.MapFullError:
            environment.set_mapsize(GROWTH * environment.info()["map_size"])
        except lmdb.MapResizedError:
            environment.set_mapsize(0)


class LmdbEnvironment(FileStore[OpenEnvironment]):
    """The folder of a store, the environment in it, and its readers."""

    def __init__(self, path: str, url: str, options: FileOptions) -> None:
        super().__init__(path, url, options, lmdb.Error)
        self._gate = threading.Lock()
        self._opened: OpenEnvironment | None = None
        self._map_size = options.map_size
        self._writer_lock = WriterLock(lmdb_file.writer_lock_file(path))
        self._writes_reserved = False
        # The threads that read at this moment. Single steps of the interpreter, so that reading takes no lock.
        self._reading: dict[int, bool] = {}

    def translated(self, error: Exception) -> KvModelsError:
        """The error of this library for an error of LMDB."""
        return translated(error, self.url, lmdb_file.data_file(self.path))

    def present_identity(self) -> FileIdentity | None:
        """The identity of the file that the path holds now."""
        return file_identity(lmdb_file.data_file(self.path))

    # Reading

    def reading(self, work: Callable[[OpenEnvironment], T]) -> T:
        """Do ``work`` on the environment, again while it cannot be read; it ends the transactions that it begins."""
        thread = get_ident()
        backoff: Backoff | None = None
        while True:
            failure: lmdb.Error | None = None
            try:
                # Registered first, looked at second; who takes the environment away does it the other way round.
                self._reading[thread] = True
                opened = self._opened
                if opened is not None:
                    return work(opened)
            except lmdb.Error as error:
                failure = error
            finally:
                self._reading.pop(thread, None)
            backoff = backoff or self.backoff()
            self._make_readable(failure, backoff)

    def reading_at_once(self, work: Callable[[OpenEnvironment], T]) -> T | None:
        """Do ``work`` if that takes no waiting, else return None; it may have been begun then."""
        thread = get_ident()
        try:
            self._reading[thread] = True
            opened = self._opened
            return None if opened is None else work(opened)
        except lmdb.Error:
            return None  # the caller reads again with backoff, and is told what is wrong
        finally:
            self._reading.pop(thread, None)

    def point(
        self,
        key: bytes,
        guard: Guard | None,
        follow: Follow | None,
        all_time: bool,  # noqa: ARG002 - a row with a deadline is read in the other way
    ) -> ReadResult | None:
        """The row of one key, and single ones behind it, if that takes neither waiting nor a look at the clock.

        The same as ``reading`` and ``rows.py`` do in more steps; a lookup is little more than this. None also for a
        deadline, a guard that does not hold, or whatever else is not as usual.
        """
        thread = get_ident()
        try:
            self._reading[thread] = True
            opened = self._opened
            if opened is None:
                return None
            environment, databases = opened
            with environment.begin() as transaction:
                state = transaction.get(STATE_KEY)
                if guard is not None:
                    held = transaction.get(guard.key, None, databases[0])
                    if held is None or held[9] or held[:8] + ZEROS != guard.versionstamp:
                        return None
                found = _at(transaction, databases, key)
                followed = [] if follow is None else _followed(transaction, databases, found, follow)
        except lmdb.Error:
            return None
        finally:
            self._reading.pop(thread, None)
        if state is None or found is None or None in followed:
            return None
        return _result(ReadResult, ([found], followed, state[VERSION] + ZEROS))

    def _make_readable(self, failure: lmdb.Error | None, backoff: Backoff) -> None:
        """Do what the next attempt to read needs, or raise what the failure means."""
        if failure is None:
            with self._gate:  # whoever has taken the environment away holds it
                if self._opened is not None:
                    return
            with self.write_lock:
                self._require_environment(backoff)
        elif isinstance(failure, lmdb.MapResizedError):
            with self.write_lock:
                self._resize(0)
        else:
            opened = self._opened
            if isinstance(failure, lmdb.ReadersFullError) and opened is not None:
                opened.environment.reader_check()  # those of killed processes
            backoff.wait(failure)

    def state_in(self, transaction: Transaction) -> State:
        """The state of the store in a transaction. Raises DecodeError: there is none."""
        state = lmdb_file.read_state(transaction, self.url)
        if state is None:
            raise DecodeError("the LMDB file is damaged", reason="its counter is missing", hint="Restore a backup.")
        return state

    # The environment

    def _require_environment(self, backoff: Backoff) -> OpenEnvironment:
        """The environment, opened again if need be; the caller holds ``write_lock``."""
        with self._gate:
            opened = self._opened
            if opened is None:
                if self.closed_reason is not None:
                    raise self.closed_error()
                if self.present_identity() != self.identity:
                    raise replaced(self.url, self.path)
                try:
                    opened = self._open_environment(backoff, first=False)
                except lmdb.Error as error:
                    raise self.translated(error) from error
            return opened

    def _open_environment(self, backoff: Backoff, *, first: bool) -> OpenEnvironment:
        """Open the folder; the caller holds ``write_lock`` and ``_gate``."""
        environment: lmdb.Environment | None = None
        try:
            if not self.readonly:
                self._writer_lock.acquire(backoff)
            environment = lmdb_file.open_environment(
                self.path, self.url, self.options, self._map_size, readonly=self.readonly
            )
            if self.readonly:
                with_room(environment, lambda one: lmdb_file.refuse_uninitialised(one, self.url, self.clock))
                databases = lmdb_file.open_databases(environment)
            else:
                environment.reader_check()
                databases = with_room(
                    environment, lambda one: lmdb_file.initialise(one, self.url, self.clock, raise_counter=first)
                )
        except BaseException:
            if environment is not None:
                environment.close()
            raise
        finally:
            self._writes_reserved = False
            self._writer_lock.release()
        opened = self._opened = OpenEnvironment(environment, databases)
        return opened

    def _make_room(self, opened: OpenEnvironment) -> None:
        """Make the map larger, and let pages that only a killed reader holds be used again."""
        opened.environment.reader_check()
        self._resize(GROWTH * opened.environment.info()["map_size"])

    def _resize(self, size: int) -> None:
        """Give the map a size (0: the one that another process gave it); the caller holds ``write_lock``.

        Snapshots end: LMDB cannot keep their pages where they are.
        """
        with self._gate:
            opened = self._opened
            if opened is None:
                return
            try:
                self._opened = None
                self.expire_snapshots(None)
                self._wait_for_readers()
                opened.environment.set_mapsize(size)
                self._map_size = opened.environment.info()["map_size"]
            except lmdb.Error as error:
                opened.environment.close()
                raise StorageFullError(
                    "there is no room for the write",
                    url=self.url,
                    reason=f"a map of {size} bytes: {error}",
                    hint="Allow the process a larger address space.",
                ) from error
            except BaseException:
                opened.environment.close()  # opened again by the next call
                raise
            self._opened = opened

    def _wait_for_readers(self) -> None:
        """Wait for the calls that read at this moment; the caller has taken the environment away from new ones."""
        own = get_ident()
        while any(thread != own for thread in list(self._reading)):
            time.sleep(DRAIN_PAUSE_S)

    # Closing and forks

    def before_fork(self) -> None:
        """Wait for running calls, close the environment, and hold the locks until the fork is over.

        A child that inherited it could not open the folder itself, and would share the file of the writer's lock.
        """
        self.write_lock.acquire()
        self._gate.acquire()
        self._close_environment()

    def after_fork_in_parent(self) -> None:
        """Let calls go on; they open the environment again."""
        self._gate.release()
        self.write_lock.release()

    def _close_environment(self) -> None:
        opened = self._opened
        try:
            self._opened = None
            self.expire_snapshots(None)
            self._wait_for_readers()
        finally:
            if opened is not None:
                opened.environment.close()
            self._writer_lock.close()
            self._writes_reserved = False


def _at(transaction: Transaction, databases: Databases, key: bytes) -> list[Row] | None:
    """The row of a key; None if it has a deadline."""
    data = transaction.get(key, None, databases[0])
    if data is None:
        return []
    return None if data[9] else [unpacked(key, data)]


def _followed(
    transaction: Transaction, databases: Databases, found: list[Row] | None, follow: Follow
) -> list[list[Row] | None]:
    """The rows of what follows, which is one key as a rule."""
    if found is None:
        return []
    if isinstance(follow, PredictedFollow) and found:
        predicted = _at(transaction, databases, follow.predicted_key(found[0][1]))
        if predicted:
            follow.misses = 0
            return [predicted]
    return [_behind(transaction, databases, one) for one in follow([found])]


def _behind(transaction: Transaction, databases: Databases, one: ReadRange) -> list[Row] | None:
    """The row of a range of one key; None for every other range, and as ``_at``."""
    start, end, limit, _, _ = one
    return None if end is not None or limit is not None or not start else _at(transaction, databases, start)
