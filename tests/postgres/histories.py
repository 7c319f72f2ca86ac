"""Notes of processes that use one store while its server crashes: intents, answers, reads and deliveries.

Each process writes its notes to a file of its own, an intent before the call and an answer behind it, so that they
outlive a process that is killed. ``history_judge.py`` compares the notes with what the store holds in the end.
"""

from __future__ import annotations

import os
import pickle
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kvmodels import CommitUnknownError, Database, KvModel, PrimaryKey, RetryPolicy, Unique
from kvmodels.core.keys import Key, encode_key, key_range
from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Committed,
    Entry,
    ReadRange,
    ReadResult,
    Set,
    format_versionstamp,
)
from kvmodels.engines.contract import Engine
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.errors import EngineTimeoutError, IntegrityError
from tests.contract.replay import Seen, random_mutation
from tests.postgres.early import AlwaysEarly, NeverEarly, use_mode
from tests.through_loop import EngineThroughLoop

NAMES: tuple[Key, ...] = tuple(("key", number) for number in range(6))
END: Key = ("key", "end")
KEYS = tuple(encode_key(name) for name in NAMES)
EVERYTHING = ReadRange(*key_range(prefix=("key",)))
MARKS = ReadRange(*key_range(prefix=("mark",)))
BATCH = 20
"""Changes of one read of a feed."""

CHANGE_LOG_S = 3_600
BUSY_S = 60
RETRIES_S = 120

STOP = "stop"
ACKNOWLEDGED = "acknowledged"

Result = Literal["made", "refused", "not made", "unknown"]
Kind = Literal["early", "natural", "strict", "loop", "reads", "feeds", "watches keys", "watches", "switches"]
WRITERS: tuple[Kind, ...] = ("early", "natural", "strict", "loop", "early", "natural")
READERS: tuple[Kind, ...] = ("reads", "switches")
FOLLOWERS: tuple[Kind, ...] = ("feeds", "watches keys", "watches")


class Claim(KvModel, collection="claims"):
    """A number that the first process gets, and that is never given back."""

    id: PrimaryKey[str]
    number: Unique[int]


class Intent(NamedTuple):
    """An operation that is about to be sent; its last mutation sets a mark that no other one sets."""

    mark: bytes
    write: AtomicWrite


class Answer(NamedTuple):
    """The answer to an operation, its versionstamp, the positions of failed checks, and when the call was made."""

    mark: bytes
    result: Result
    versionstamp: bytes
    failed: tuple[int, ...]
    began: float
    ended: float


class Claiming(NamedTuple):
    """A claim that is about to be made."""

    number: int
    owner: str


class Claimed(NamedTuple):
    """The answer to a claim."""

    number: int
    owner: str
    result: Result


class Looked(NamedTuple):
    """A plain read, and whether its state was settled behind it; False: it was lost, None: not asked, or no answer."""

    seen: Seen
    settled: bool | None
    began: float
    ended: float


class Fed(NamedTuple):
    """Changes that a feed has delivered: keys with their versionstamps."""

    since: bytes
    through: bytes
    changes: list[tuple[bytes, bytes]]


class Watched(NamedTuple):
    """Entries that a watch has delivered."""

    entries: list[Entry]


Note = Intent | Answer | Claiming | Claimed | Looked | Fed | Watched


class Journal:
    """The notes of one process.

    Args:
        path: of a new file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._acknowledged = os.open(path.parent / ACKNOWLEDGED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, one: Note) -> None:
        """Write a note, which outlives this process."""
        pickle.dump(one, self._file)
        self._file.flush()
        if isinstance(one, (Answer, Claimed)) and one.result == "made":
            os.write(self._acknowledged, b".")

    def close(self) -> None:
        """Close its files."""
        self._file.close()
        os.close(self._acknowledged)


def notes_of(path: Path) -> list[Note]:
    """Return the notes of one process, which may have been killed while it wrote the last one."""
    found: list[Note] = []
    with path.open("rb") as file, suppress(EOFError, pickle.UnpicklingError):
        while True:
            found.append(pickle.load(file))
    return found


def opened(url: str, **options: Any) -> Database:
    """Return the store of a history; a session that is ended while it is opened is an error that asks to try again."""
    retry = RetryPolicy(deadline_s=RETRIES_S)
    end = time.monotonic() + RETRIES_S
    while True:
        try:
            return Database(url, models=[Claim], busy_timeout=BUSY_S, retry=retry, **options)
        except EngineTimeoutError:
            if time.monotonic() > end:
                raise


def engine_of(db: Database) -> PostgresEngine:
    """Return the engine of a store."""
    engine = db._engine
    assert isinstance(engine, PostgresEngine)
    return engine


class Client:
    """One process of a history.

    Args:
        url: of the store.
        folder: of the notes.
        kind: says what the process does.
        number: of the process, which no other one has.
        seed: of what is drawn.
    """

    def __init__(self, url: str, folder: Path, kind: Kind, number: int, seed: int) -> None:
        self._url = url
        self._kind = kind
        self._number = number
        self._stop = folder / STOP
        self._journal = Journal(folder / f"{number} {kind}.notes")
        self._rng = random.Random(f"{seed} {number}")
        self._known: dict[bytes, bytes | None] = {}
        self._turn = 0

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def run(self) -> None:
        """Do it until the history ends."""
        if self._kind == "switches":
            self._switch()
            return
        with opened(self._url) as db:
            engine = engine_of(db)
            if self._kind in FOLLOWERS:
                follow = {"feeds": self._feed, "watches keys": self._watch_keys, "watches": self._watch}
                follow[self._kind](db)
            elif self._kind == "reads":
                self._repeat(lambda: self._look(engine, settle=self._rng.random() < 0.5))
            else:
                self._write_all(db, engine)

    def _repeat(self, turn: Callable[[], object]) -> None:
        while not self._stop.exists():
            # A call that could not be made is an answer that promises nothing.
            with suppress(EngineTimeoutError):
                turn()

    # Writers

    def _write_all(self, db: Database, engine: PostgresEngine) -> None:
        if self._kind != "natural":
            use_mode(engine, NeverEarly if self._kind == "strict" else AlwaysEarly)
        through = EngineThroughLoop(engine) if self._kind == "loop" else None

        def turn() -> None:
            self._turn += 1
            if self._rng.random() < 0.2:
                self._claim(db)
            else:
                self._write(through or engine, engine)

        self._repeat(turn)
        if through is not None:
            through.close()

    def _claim(self, db: Database) -> None:
        """Claim a number, which other processes claim at about the same time."""
        number, owner = self._turn // 4, f"{self._number}-{self._turn}"
        self._journal.note(Claiming(number, owner))
        result: Result = "made"
        try:
            db[Claim].create(id=owner, number=number)
        except IntegrityError:
            result = "refused"
        except CommitUnknownError:
            result = "unknown"
        except EngineTimeoutError:
            result = "not made"
        self._journal.note(Claimed(number, owner, result))

    def _write(self, through: Engine, engine: PostgresEngine) -> None:
        rng = self._rng
        if rng.random() < 0.5:
            self._look(engine, settle=False)
        checks = tuple(Check(key, self._known.get(key)) for key in rng.sample(KEYS, rng.choice((0, 1, 1, 2))))
        mutations = tuple(random_mutation(rng, KEYS) for _ in range(rng.choice((1, 2, 3))))
        if self.commit(through, AtomicWrite(checks, mutations)).result != "made":
            self._look(engine, settle=False)

    def commit(self, engine: Engine, write: AtomicWrite) -> Answer:
        """Carry out an operation with a mark of its own, and return its answer."""
        self._turn += 1
        mark = encode_key(("mark", self._number, self._turn))
        marked = write._replace(mutations=(*write.mutations, Set(mark, b"", 2)))
        self._journal.note(Intent(mark, marked))
        result: Result = "refused"
        failed: tuple[int, ...] = ()
        versionstamp, began = b"", time.monotonic()
        try:
            outcome = engine.commit(marked)
        except CommitUnknownError:
            result = "unknown"
        except EngineTimeoutError:
            result = "not made"
        else:
            if isinstance(outcome, Committed):
                result, versionstamp = "made", outcome.versionstamp
            else:
                failed = outcome.failed_checks
        answer = Answer(mark, result, versionstamp, failed, began, time.monotonic())
        self._journal.note(answer)
        return answer

    # Readers

    def _look(self, engine: PostgresEngine, *, settle: bool) -> None:
        began = time.monotonic()
        found = engine.read([EVERYTHING])
        assert isinstance(found, ReadResult)
        ended = time.monotonic()
        settled: bool | None = None
        if settle:
            with suppress(EngineTimeoutError):
                settled = engine.settle(found.versionstamp)
        seen = Seen(found.versionstamp, (EVERYTHING,), found.ranges)
        self._journal.note(Looked(seen, settled, began, ended))
        self._known = dict.fromkeys(KEYS) | {row.key: row.versionstamp for row in found.ranges[0]}

    def _switch(self) -> None:
        """Change between durable reads and others, beside the writers."""
        durable = False

        def turn() -> None:
            nonlocal durable
            durable = not durable
            with opened(self._url, durable_reads=durable) as db:
                for _ in range(self._rng.randrange(40 if durable else 160)):
                    self._look(engine_of(db), settle=False)

        self._repeat(turn)

    # Followers

    def _feed(self, db: Database) -> None:
        engine, since, end = engine_of(db), _first(db), encode_key(END)
        while True:
            with suppress(EngineTimeoutError):
                engine.wait_for_commit(since, 1)
                found = engine.changes(EVERYTHING._replace(limit=BATCH), since)
                changes = [(change.key, change.versionstamp) for change in found.changes]
                self._journal.note(Fed(since, found.through, changes))
                since = found.through
                if any(key == end for key, _ in changes):
                    return

    def _watch_keys(self, db: Database) -> None:
        self._deliver(lambda: iter(db.kv.watch([*NAMES, END])))

    def _watch(self, db: Database) -> None:
        since = format_versionstamp(_first(db))

        def entries() -> Iterator[list[Entry]]:
            nonlocal since
            watch = db.kv.watch(prefix=("key",), since=since)
            for found in watch:
                yield found
                since = watch.versionstamp or since

        self._deliver(entries)

    def _deliver(self, watch: Callable[[], Iterator[list[Entry]]]) -> None:
        while True:
            with suppress(EngineTimeoutError):
                for entries in watch():
                    self._journal.note(Watched(entries))
                    if any(entry.key == END and entry.versionstamp is not None for entry in entries):
                        return


def _first(db: Database) -> bytes:
    """Return the versionstamp of the first entry, from which every feed begins."""
    entry = db.kv.get(("first",))
    assert entry.versionstamp is not None
    return bytes.fromhex(entry.versionstamp)
