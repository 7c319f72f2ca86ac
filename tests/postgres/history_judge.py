"""The judge of a history: does what each process has noted agree with what the store holds after all crashes?

A plain read may show a commit that a crash removes. Nothing else may: not an acknowledged commit, a refusal, a settled
read, a change of a feed or a watch, or a position.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeVar

from kvmodels import KvU64
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, ReadResult, Row, to_versionstamp
from tests.contract.replay import Acknowledged, Journal, apply, judge
from tests.postgres.histories import (
    END,
    EVERYTHING,
    NAMES,
    Answer,
    Claimed,
    Fed,
    Intent,
    Looked,
    Note,
    Watched,
)

NoteT = TypeVar("NoteT", bound=Note)

WATCHED = tuple(encode_key(name) for name in (*NAMES, END))


class Stored(NamedTuple):
    """The content of the store after the history.

    Attributes:
        final: a read of everything.
        marks: of the operations that were applied, with their versionstamps.
        chain: the version of each commit, and the one before it.
        holders: the owner of each number that was claimed.
    """

    final: ReadResult
    marks: Mapping[bytes, bytes]
    chain: Sequence[tuple[int, int]]
    holders: Mapping[int, str]


@dataclass
class Findings:
    """The findings of the judge; ``violations`` is empty for a store that keeps its promises."""

    violations: list[str] = field(default_factory=list)
    acknowledged: int = 0
    refused: int = 0
    uncertain: int = 0
    looked: int = 0
    settled: int = 0
    lost_reads: int = 0
    delivered: int = 0


class HistoryJudge:
    """Compares the notes of a history with what is stored.

    Args:
        journals: the notes of each process.
        stored: after the history.
    """

    def __init__(self, journals: Iterable[Sequence[Note]], stored: Stored) -> None:
        self._journals = [list(notes) for notes in journals]
        self._stored = stored
        self._found = Findings()
        self._known = {to_versionstamp(version) for version, _ in stored.chain}
        intents = (one for notes in self._journals for one in notes if isinstance(one, Intent))
        self._applied = sorted(
            (stored.marks[one.mark], one.write._replace(mutations=one.write.mutations[:-1]))
            for one in intents
            if one.mark in stored.marks
        )
        self._answers = self._all(Answer)
        self._ended, self._floors = _rising(self._answers)
        self._states: list[tuple[bytes, dict[bytes, Row]]] = [(b"", {})]
        self._rows: dict[bytes, dict[bytes, Row | None]] = {}

    def findings(self) -> Findings:
        """Return everything that does not agree."""
        self._replay()
        self._judge_chain()
        self._judge_answers()
        self._judge_claims()
        self._judge_reads()
        for notes in self._journals:
            self._judge_order(notes)
            self._judge_feed([one for one in notes if isinstance(one, Fed)])
            self._judge_watch([one for one in notes if isinstance(one, Watched)])
        return self._found

    def _all(self, kind: type[NoteT]) -> list[NoteT]:
        return [one for notes in self._journals for one in notes if isinstance(one, kind)]

    def _wrong(self, text: str) -> None:
        self._found.violations.append(text)

    def _floor(self, moment: float) -> bytes:
        """Return the greatest versionstamp that was acknowledged before a moment."""
        return self._floors[bisect_left(self._ended, moment)]

    # What was applied

    def _replay(self) -> None:
        state: dict[bytes, Row] = {}
        for stamp, write in self._applied:
            for mutation in write.mutations:
                apply(state, mutation, stamp)
                self._rows.setdefault(mutation.key, {})[stamp] = state.get(mutation.key)
            self._states.append((stamp, dict(state)))

    def _judge_chain(self) -> None:
        for (before, _), (version, previous) in pairwise(sorted(self._stored.chain)):
            if previous != before:
                self._wrong(f"commit {version} follows {previous}, and is stored behind {before}")

    def _judge_answers(self) -> None:
        ceilings = _ceilings(self._answers)
        writes = {one.mark: one.write for one in self._all(Intent)}
        for one in self._answers:
            stored = self._stored.marks.get(one.mark)
            if one.result == "made":
                self._found.acknowledged += 1
                if stored != one.versionstamp:
                    self._wrong(f"{one} was acknowledged, and stored is {stored!r}")
                if one.versionstamp <= self._floor(one.began):
                    self._wrong(f"{one} is not above what was acknowledged before it")
            elif one.result == "unknown":
                self._found.uncertain += 1
            elif stored is not None:
                self._wrong(f"{one} was not to be applied, and is stored as {stored.hex()}")
            if one.result == "refused":
                self._found.refused += 1
                end = ceilings[1][bisect_right(ceilings[0], one.ended)]
                if not self._may_be_refused(writes[one.mark], one, end):
                    self._wrong(f"{one} was refused, and its checks hold in every state that is left of that time")

    def _may_be_refused(self, write: AtomicWrite, answer: Answer, end: bytes) -> bool:
        """Return whether the failed checks of an operation fail in a state of the time of its call."""
        stamps = [stamp for stamp, _ in self._states]
        first = max(0, bisect_right(stamps, self._floor(answer.began)) - 1)
        failed = [write.checks[position] for position in answer.failed]
        for _, state in self._states[first : bisect_left(stamps, end)]:
            rows = [(check, state.get(check.key)) for check in failed]
            if all(check.versionstamp != (None if row is None else row.versionstamp) for check, row in rows):
                return True
        return False

    def _judge_claims(self) -> None:
        holders = self._stored.holders
        for one in self._all(Claimed):
            holder = holders.get(one.number)
            if one.result == "made":
                self._found.acknowledged += 1
                if holder != one.owner:
                    self._wrong(f"{one} was acknowledged, and the number is that of {holder}")
            elif one.result == "refused":
                self._found.refused += 1
                if holder is None:
                    self._wrong(f"{one} was refused, and the number is free")
            if one.result in ("refused", "not made") and holder == one.owner:
                self._wrong(f"{one} was not to be made, and is stored")

    # What was read

    def _judge_reads(self) -> None:
        kept = [one for one in self._all(Looked) if one.seen.versionstamp in self._known]
        commits = [Acknowledged(*one) for one in self._applied]
        verdict = judge([Journal(commits, [one.seen for one in kept], 0)], self._stored.final, EVERYTHING)
        self._found.violations += verdict.violations
        for one in self._all(Looked):
            self._found.looked += 1
            self._found.settled += one.settled is True
            if one.seen.versionstamp < self._floor(one.began):
                self._wrong(f"a read at {one.seen.versionstamp.hex()} is behind an acknowledged commit")
            if one.seen.versionstamp not in self._known:
                self._judge_lost(one)

    def _judge_lost(self, one: Looked) -> None:
        self._found.lost_reads += 1
        if one.settled:
            self._wrong(f"a settled read at {one.seen.versionstamp.hex()} is gone")
        for row in one.seen.rows[0]:
            if row.versionstamp in self._known and self._rows.get(row.key, {}).get(row.versionstamp) != row:
                self._wrong(f"the version {row.versionstamp.hex()} of {row.key!r} was given twice")

    def _judge_order(self, notes: Sequence[Note]) -> None:
        """A commit is above everything that its process has read before, also if that was lost."""
        top = b""
        for one in notes:
            if isinstance(one, Looked):
                top = max(top, one.seen.versionstamp)
            elif isinstance(one, Answer) and one.result == "made":
                if one.versionstamp <= top:
                    self._wrong(f"{one} is not above what its process has read before: {top.hex()}")
                top = one.versionstamp

    # What was delivered

    def _judge_feed(self, feed: Sequence[Fed]) -> None:
        told: dict[bytes, bytes] = {}
        last = b""
        for one in feed:
            if one.through not in self._known:
                self._wrong(f"the position {one.through.hex()} of a feed is gone")
            if one.through < one.since:
                self._wrong(f"a feed goes back from {one.since.hex()} to {one.through.hex()}")
            for key, stamp in one.changes:
                self._found.delivered += 1
                if stamp not in self._rows.get(key, {}):
                    self._wrong(f"a feed has delivered {key!r} at {stamp.hex()}, which is gone")
                if stamp < last:
                    self._wrong(f"a feed goes back to {stamp.hex()} from {last.hex()}")
                told[key] = last = stamp
        if feed and told != {key: max(rows) for key, rows in self._rows.items()}:
            self._wrong("a feed has missed the last change of a key")

    def _judge_watch(self, watch: Sequence[Watched]) -> None:
        told: dict[bytes, bytes | None] = {}
        tops: dict[bytes, bytes] = {}
        for entry in (entry for one in watch for entry in one.entries):
            self._found.delivered += 1
            key = encode_key(entry.key)
            stamp = None if entry.versionstamp is None else bytes.fromhex(entry.versionstamp)
            told[key] = stamp
            if stamp is None:
                continue
            row = self._rows.get(key, {}).get(stamp)
            if row is None or entry.value != KvU64(int.from_bytes(row.value, "little")):
                self._wrong(f"a watch has delivered {entry}, and stored was {row}")
            if stamp < tops.get(key, b""):
                self._wrong(f"a watch goes back to {entry}")
            tops[key] = stamp
        final = {row.key: row.versionstamp for row in self._stored.final.ranges[0]}
        if watch and {key: told.get(key) for key in WATCHED} != {key: final.get(key) for key in WATCHED}:
            self._wrong("a watch has missed the last change of a key")


def _rising(answers: Iterable[Answer]) -> tuple[list[float], list[bytes]]:
    """Return when commits were acknowledged, and the greatest versionstamp before each of them, and after all."""
    made = sorted((one.ended, one.versionstamp) for one in answers if one.result == "made")
    floors = [b""]
    for _, stamp in made:
        floors.append(max(floors[-1], stamp))
    return [moment for moment, _ in made], floors


def _ceilings(answers: Iterable[Answer]) -> tuple[list[float], list[bytes]]:
    """Return when acknowledged commits began, and the smallest versionstamp from each of them on, and after all."""
    made = sorted(((one.began, one.versionstamp) for one in answers if one.result == "made"), reverse=True)
    least = [b"\xff" * 10]
    for _, stamp in made:
        least.append(min(least[-1], stamp))
    return [moment for moment, _ in reversed(made)], least[::-1]
