"""A history: processes that use one store beside faults, until it is judged what each of them has noted."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Self

import psycopg

from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, ReadResult, Set
from tests.crowd import until
from tests.postgres.histories import (
    ACKNOWLEDGED,
    CHANGE_LOG_S,
    END,
    EVERYTHING,
    FOLLOWERS,
    MARKS,
    READERS,
    STOP,
    WRITERS,
    Claim,
    Client,
    Kind,
    engine_of,
    notes_of,
    opened,
)
from tests.postgres.history_judge import Findings, HistoryJudge, Stored
from tests.source_tree import REPOSITORY

PATIENCE_S = 600
"""Seconds without a write, or until a process ends: twelve that start on two loaded cores take two minutes."""

_CHAIN = "SELECT version, prev FROM kvmodels.commits"
_KINDS = "SELECT count(*) FILTER (WHERE base IS NOT NULL), count(*) FROM kvmodels.commits WHERE NOT void"


class History:
    """Processes on one store, until ``finish`` is called; the end of the block kills those that are left.

    Args:
        url: of the store, which is empty; with all servers that may hold it.
        folder: of the notes, empty.
        seed: of what is drawn.
    """

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self._url = url
        self._folder = folder
        self._seed = seed
        self._number = 0
        with opened(url, change_log=CHANGE_LOG_S, durable_reads=False) as db:
            db.kv.set(("first",), 1)
        (folder / ACKNOWLEDGED).touch()
        self._kinds = WRITERS
        self._followers = [self._start(kind) for kind in FOLLOWERS]
        self._others = [self._start(kind) for kind in READERS]
        self._writers = [self._start(kind) for kind in WRITERS]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for one in (*self._writers, *self._others, *self._followers):
            one.kill()
            one.wait()

    def wait_for(self, more: int) -> None:
        """Wait until so many writes more were acknowledged, for as long as there are more of them now and then."""
        wanted = self._acknowledged() + more
        while (known := self._acknowledged()) < wanted:
            until(lambda known=known: self._acknowledged() > known or self._ended(), PATIENCE_S)  # type: ignore[misc]
            assert not self._ended(), self._errors()

    def kill_a_writer(self, at: int) -> None:
        """Kill a writer, and start another one like it."""
        position = at % len(self._writers)
        self._writers[position].kill()
        self._writers[position].wait()
        self._writers[position] = self._start(self._kinds[position])

    def finish(self) -> Findings:
        """Let every process end, and compare their notes with what is stored."""
        (self._folder / STOP).touch()
        self._wait_for(self._others + self._writers)
        with opened(self._url) as db:
            self._number += 1
            write = AtomicWrite((), (Set(encode_key(END), bytes(8), 2),))
            with closing(Client(self._url, self._folder, "strict", self._number, self._seed)) as last:
                until(lambda: last.commit(engine_of(db), write).result == "made")
            self._wait_for(self._followers)
            final = engine_of(db).read([EVERYTHING, MARKS])
            assert isinstance(final, ReadResult)
            marks = {row.key: row.versionstamp for row in final.ranges[1]}
            holders = {claim.number: claim.id for claim in db[Claim].all()}
            assert db.check().ok
        with psycopg.connect(f"{self._url}&target_session_attrs=read-write", autocommit=True) as admin:
            chain = admin.execute(_CHAIN).fetchall()
            ((early, commits),) = admin.execute(_KINDS).fetchall()
        stored = Stored(final._replace(ranges=final.ranges[:1]), marks, chain, holders)
        found = HistoryJudge((notes_of(path) for path in self._folder.glob("*.notes")), stored).findings()
        print(f"seed {self._seed}: {early} of {commits} commits were early; {found}")
        assert early, "nothing was at risk"
        return found

    def _acknowledged(self) -> int:
        return os.stat(self._folder / ACKNOWLEDGED).st_size

    def _start(self, kind: Kind) -> subprocess.Popen[bytes]:
        self._number += 1
        given = [self._url, str(self._folder), kind, str(self._number), str(self._seed)]
        command = [sys.executable, "-W", "error", "-m", "tests.postgres.history_process", *given]
        with (self._folder / f"{self._number} {kind}.log").open("wb") as log:
            return subprocess.Popen(command, cwd=REPOSITORY, stderr=log)

    def _ended(self) -> bool:
        return any(one.poll() is not None for one in (*self._writers, *self._others, *self._followers))

    def _wait_for(self, processes: list[subprocess.Popen[bytes]]) -> None:
        assert [one.wait(PATIENCE_S) for one in processes] == [0] * len(processes), self._errors()

    def _errors(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("*.log")))
