"""The process of one column: opens the store, runs the rows that it is told to, reports times and digests.

Rules of this module: one JSON object a line, in and out; the clock runs around the calls of a row and nothing else;
digests are made afterwards. ``columns/deno_store.ts`` speaks the same protocol.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from benchmarks.columns.registry import COLUMNS, Column
from benchmarks.columns.sessions import AsyncSession, Session
from benchmarks.measuring import used_bytes
from benchmarks.workload import User, digest, line

LARGEST_CHUNK = 64
"""The clock is looked at after 1, 2, 4, … 64 calls, so that it costs nothing where calls are short."""
PIECE = 100
PIECES = {"list_colour": 1, "scan": 1, "page": 5}
"""After how many calls of a row what they returned is turned into lines and let go, 100 objects or one list: nobody
keeps all that was ever read, and where it is kept a row measures how the allocator gets memory from the system."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one row, and the results of its calls."""

    seconds: float
    results: list[Any]


def timed(call: Callable[..., Any], arguments: Sequence[Sequence[Any]], budget: float) -> Timing:
    """Run the calls in order until they are done or the budget (seconds) is used up."""
    results: list[Any] = []
    keep = results.append
    first, size = 0, 1
    start = perf_counter()
    deadline = start + budget
    while first < len(arguments):
        for argument in arguments[first : first + size]:
            keep(call(*argument))
        if perf_counter() >= deadline:
            break
        first, size = first + size, min(2 * size, LARGEST_CHUNK)
    return Timing(perf_counter() - start, results)


async def timed_async(call: Callable[..., Any], arguments: Sequence[Sequence[Any]], budget: float) -> Timing:
    """As ``timed``, awaiting each call."""
    results: list[Any] = []
    keep = results.append
    first, size = 0, 1
    start = perf_counter()
    deadline = start + budget
    while first < len(arguments):
        for argument in arguments[first : first + size]:
            keep(await call(*argument))
        if perf_counter() >= deadline:
            break
        first, size = first + size, min(2 * size, LARGEST_CHUNK)
    return Timing(perf_counter() - start, results)


class Store(Protocol):
    """An open store as the protocol sees it: calls run to their end, whatever drives them."""

    def call(self, name: str, *arguments: Any) -> Any:
        """Run one call."""
        ...

    def timed(self, name: str, arguments: Sequence[Sequence[Any]], budget: float) -> Timing:
        """Run many and time them."""
        ...

    def contend(self, key: int, budget: float, loops: int, most: int) -> tuple[float, int]:
        """Increment one record in several loops at once; seconds and increments."""
        ...

    def fields(self, obj: Any) -> User:
        """Return the values of an object."""
        ...

    def together(self, call: str, keys: Sequence[int], names: Sequence[str]) -> float:
        """Give each key its name by a call of the session, all at once where the store can; seconds."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...


def spread_rows(name: str, arguments: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """The arguments as the session takes them: an inserted row is one User."""
    return [(User(*argument),) for argument in arguments] if name == "insert" else arguments


class SyncStore:
    """A synchronous session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.fields = session.fields
        self.close = session.close

    def call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._session, name)(*arguments)

    def timed(self, name: str, arguments: Sequence[Sequence[Any]], budget: float) -> Timing:
        return timed(getattr(self._session, name), arguments, budget)

    def contend(self, key: int, budget: float, loops: int, most: int) -> tuple[float, int]:
        if loops == 1:
            timing = timed(self._session.increment, [(key,)] * most, budget)
            return timing.seconds, len(timing.results)
        barrier = threading.Barrier(loops + 1)
        done: list[int] = []
        failures: list[BaseException] = []

        def loop() -> None:
            try:
                with self._session.beside() as session:
                    barrier.wait()
                    done.append(len(timed(session.increment, [(key,)] * most, budget).results))
            except BaseException as error:
                failures.append(error)
                barrier.abort()
                raise

        threads = [threading.Thread(target=loop) for _ in range(loops)]
        for thread in threads:
            thread.start()
        barrier.wait()
        start = perf_counter()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return perf_counter() - start, sum(done)

    def together(self, call: str, keys: Sequence[int], names: Sequence[str]) -> float:
        return self.timed(call, list(zip(keys, names, strict=True)), float("inf")).seconds


class AsyncStore:
    """An asynchronous session, and the loop that it lives in."""

    def __init__(self, runner: asyncio.Runner, session: AsyncSession) -> None:
        self._runner, self._session = runner, session
        self.fields = session.fields

    def call(self, name: str, *arguments: Any) -> Any:
        async def once() -> Any:
            return await getattr(self._session, name)(*arguments)

        return self._runner.run(once())

    def timed(self, name: str, arguments: Sequence[Sequence[Any]], budget: float) -> Timing:
        return self._runner.run(timed_async(getattr(self._session, name), arguments, budget))

    def contend(self, key: int, budget: float, loops: int, most: int) -> tuple[float, int]:
        async def all_loops() -> list[Timing]:
            return await asyncio.gather(
                *(timed_async(self._session.increment, [(key,)] * most, budget) for _ in range(loops))
            )

        start = perf_counter()
        timings = self._runner.run(all_loops())
        return perf_counter() - start, sum(len(timing.results) for timing in timings)

    def together(self, call: str, keys: Sequence[int], names: Sequence[str]) -> float:
        async def all_tasks() -> float:
            start = perf_counter()
            await asyncio.gather(*map(getattr(self._session, call), keys, names))
            return perf_counter() - start

        return self._runner.run(all_tasks())

    def close(self) -> None:
        async def closed() -> None:
            await self._session.close()

        self._runner.run(closed())


def lines_of(row: str, results: Sequence[Any], fields: Callable[[Any], User]) -> list[str]:
    """Return the results of the calls of a read, a line for each object or number."""
    if row in ("get", "get_by_email"):
        return [line(fields(obj)) for obj in results]
    if row in ("list_colour", "page", "scan"):
        return [line(fields(obj)) for objects in results for obj in objects]
    return [str(number) for number in results] if row == "count" else []


class Worker:
    """Answers requests about one column."""

    def __init__(self, column: Column, runner: asyncio.Runner, settle: Callable[[], object] = gc.collect) -> None:
        self._column, self._runner, self._settle = column, runner, settle
        self._store: Store | None = None
        self._drawn: Any = None
        self._users: list[User] = []
        self._arguments: dict[str, list[Sequence[Sequence[Any]]]] = {}
        self._batch = 0

    @property
    def store(self) -> Store:
        """The open store."""
        assert self._store is not None, "opened first"
        return self._store

    def load(self, path: str) -> dict[str, Any]:
        """Read the workload.

        What was read is kept as it was: among strings that stay, lists that go leave room for 50,000 objects of 64
        bytes, and a store that happens to make such objects would seem to need three megabytes less.
        """
        drawn = self._drawn = json.loads(Path(path).read_text("utf-8"))
        self._users = [User(*row) for row in drawn["users"]]
        self._arguments = {
            name: [spread_rows(name, calls) for calls in parts] for name, parts in drawn["arguments"].items()
        }
        self._batch = drawn["batch"]
        return {}

    def open(self, folder: str, durability: str, key: int | None) -> dict[str, Any]:
        """Open the store; with a key, up to the first record read."""
        opener, place = self._column.opener(), Path(folder)
        start = perf_counter()
        opened = opener(place, self._column.durability)
        if isinstance(opened, Coroutine):
            self._store = AsyncStore(self._runner, self._runner.run(opened))
        else:
            self._store = SyncStore(opened)
        if key is not None:
            self.store.call("get", key)
        assert durability == self._column.durability
        return {"seconds": perf_counter() - start}

    def reopen(self, folder: str, durability: str, key: int, times: int) -> dict[str, Any]:
        """Open the store and close it, over and over; what each opening took up to the first record."""
        seconds: list[float] = []
        for _ in range(times):
            seconds.append(self.open(folder, durability, key)["seconds"])
            self.close()
        return {"seconds": seconds}

    def bulk(self, batches: int | None = None) -> dict[str, Any]:
        """Insert all users, or those of the first batches.

        As in a service, a batch has just been read from somewhere, and nobody keeps it or what its call returned: what
        is in memory afterwards is what the store keeps. With the strings of the workload a store that holds objects
        would seem to hold nothing, and objects that are kept would count for the store.
        """
        seconds = 0.0
        users = self._users if batches is None else self._users[: batches * self._batch]
        for first in range(0, len(users), self._batch):
            text = json.dumps(users[first : first + self._batch])
            batch = [User(*row) for row in json.loads(text)]
            seconds += self.store.timed("insert_many", [(batch,)], float("inf")).seconds
        return {"seconds": seconds, "done": len(users)}

    def row(self, row: str, seconds: float, part: int = 0) -> dict[str, Any]:
        """Run one part of a row."""
        self._settle()
        arguments, size = self._arguments[row][part], PIECES.get(row, PIECE)
        took, done, lines = 0.0, 0, list[str]()
        for first in range(0, len(arguments), size):
            timing = self.store.timed(row, arguments[first : first + size], seconds - took)
            took, done = took + timing.seconds, done + len(timing.results)
            lines += lines_of(row, timing.results, self.store.fields)
            del timing
            if took >= seconds:
                break
        if row in ("list_colour", "scan"):
            lines.sort()
        return {"seconds": took, "done": done, "objects": len(lines), "digest": digest(lines)}

    def contend(self, key: int, seconds: float, loops: int, most: int) -> dict[str, Any]:
        """Increment one record in several loops at once."""
        took, done = self.store.contend(key, seconds, loops, most)
        return {"seconds": took, "done": done}

    def age(self, key: int) -> dict[str, Any]:
        """Return the sum of the increments."""
        return {"age": self.store.fields(self.store.call("get", key)).age}

    def verify(self, taken: Sequence[Any], colours: Sequence[str], emails: Sequence[str]) -> dict[str, Any]:
        """Everything that the store holds, by each way there is to it, and whether it refuses a taken address."""
        store, refused = self.store, False
        try:
            store.call("insert", User(*taken))
        except Exception:  # noqa: BLE001 - each library has an error of its own for this
            refused = True
        counts = [str(store.call("count", colour)) for colour in colours]
        found = [line(store.fields(obj)) for colour in colours for obj in store.call("list_colour", colour)]
        scanned = [store.fields(obj) for obj in store.call("scan")]
        return {
            "refused": refused,
            "keys": [self.predicted_key(email) for email in emails],
            "scan": digest(sorted(map(line, scanned))),
            "colours": digest(sorted(found)),
            "counts": digest(counts),
        }

    def predicted_key(self, email: str) -> int | None:
        """Whose address it is."""
        try:
            obj = self.store.call("get_by_email", email)
        except Exception:  # noqa: BLE001 - each library has an error of its own for this
            return None
        return None if obj is None else self.store.fields(obj).id

    def together(self, keys: Sequence[int], names: Sequence[str], call: str = "update_plain") -> dict[str, Any]:
        """Many updates at once, or commits of one key each."""
        return {"seconds": self.store.together(call, keys, names)}

    def alone(self, keys: Sequence[int], names: Sequence[str], call: str) -> dict[str, Any]:
        """The same, one after the other."""
        timing = self.store.timed(call, list(zip(keys, names, strict=True)), float("inf"))
        return {"seconds": timing.seconds, "done": len(timing.results)}

    def got(self, keys: Sequence[int]) -> dict[str, Any]:
        """Return the keys left by commits of one key each."""
        return {"digest": digest(str(self.store.call("got", key)) for key in keys)}

    def memory(self) -> dict[str, Any]:
        """Memory that this process uses."""
        self._settle()
        return {"bytes": used_bytes()}

    def close(self) -> dict[str, Any]:
        """Close the store."""
        self.store.close()
        self._store = None
        return {}


def main(name: str) -> None:
    """Answer requests until the input ends."""
    with asyncio.Runner() as runner:
        worker = Worker(COLUMNS[name], runner)
        # What a library prints must not be taken for an answer.
        answers, sys.stdout = sys.stdout, sys.stderr
        for text in sys.stdin:
            request = json.loads(text)
            do = request.pop("do")
            try:
                reply = getattr(worker, do)(**request)
            except Exception:  # noqa: BLE001 - told to the process that asked
                reply = {"error": traceback.format_exc()}
            if do == "load":
                # The collector must not walk the workload while a row is measured; a service has no such thing.
                gc.collect()
                gc.freeze()
            answers.write(json.dumps(reply) + "\n")
            answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
