"""The judge of histories, by one that is written by hand and with each violation planted in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvmodels import KvU64
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Check, Entry, Mutation, ReadResult, Row, Set, format_versionstamp
from kvmodels.core.operations import to_versionstamp as stamp
from tests.contract.replay import Seen
from tests.postgres.histories import (
    END,
    EVERYTHING,
    KEYS,
    NAMES,
    Answer,
    Claimed,
    Fed,
    Intent,
    Journal,
    Looked,
    Note,
    Watched,
    notes_of,
)
from tests.postgres.history_judge import HistoryJudge, Stored

FIRST, SECOND, LAST, LOST = 5, 6, 8, 7


def value(number: int) -> bytes:
    return number.to_bytes(8, "little")


def operation(name: str, mutation: Mutation, *checks: Check) -> Intent:
    mark = encode_key(("mark", name))
    return Intent(mark, AtomicWrite(checks, (mutation, Set(mark, b"", 2))))


def put(position: int, number: int) -> Set:
    return Set(KEYS[position], value(number), 2)


def made(intent: Intent, version: int, began: float, ended: float) -> Answer:
    return Answer(intent.mark, "made", stamp(version), (), began, ended)


def entry(position: int, number: int, version: int) -> Entry:
    return Entry(NAMES[position], KvU64(number), format_versionstamp(stamp(version)), None)


def row(position: int, number: int, version: int) -> Row:
    return Row(KEYS[position], value(number), 2, stamp(version), None)


def look(version: int, rows: list[Row], began: float, *, settled: bool | None = None) -> Looked:
    return Looked(Seen(stamp(version), (EVERYTHING,), [rows]), settled, began, began + 0.1)


ONE = operation("one", put(0, 1))
TWO = operation("two", put(1, 2), Check(KEYS[1], None))
REFUSED = operation("refused", put(1, 3), Check(KEYS[1], None))
OVER = operation("over", Set(encode_key(END), value(0), 2))
ENDING = Entry(END, KvU64(0), format_versionstamp(stamp(LAST)), None)
HONEST: list[list[Note]] = [
    [ONE, made(ONE, FIRST, 1, 2), TWO, made(TWO, SECOND, 3, 4), OVER, made(OVER, LAST, 9, 10)],
    [REFUSED, Answer(REFUSED.mark, "refused", b"", (0,), 4.5, 5)],
    [look(LOST, [row(0, 1, FIRST), row(1, 2, SECOND), row(2, 9, LOST)], 5), look(FIRST, [row(0, 1, FIRST)], 2.5)],
    [
        Fed(stamp(1), stamp(SECOND), [(KEYS[0], stamp(FIRST)), (KEYS[1], stamp(SECOND))]),
        Fed(stamp(SECOND), stamp(LAST), [(encode_key(END), stamp(LAST))]),
    ],
    [Watched([entry(0, 1, FIRST)]), Watched([entry(0, 1, FIRST), entry(1, 2, SECOND), ENDING])],
    [Claimed(1, "a", "made"), Claimed(1, "b", "refused")],
]
STORED = Stored(
    ReadResult(
        [[Row(encode_key(END), value(0), 2, stamp(LAST), None), row(0, 1, FIRST), row(1, 2, SECOND)]], [], stamp(LAST)
    ),
    {ONE.mark: stamp(FIRST), TWO.mark: stamp(SECOND), OVER.mark: stamp(LAST)},
    [(1, 0), (FIRST, 1), (SECOND, FIRST), (LAST, SECOND)],
    {1: "a"},
)


def violations(*more: Note, stored: Stored = STORED) -> str:
    return "\n".join(HistoryJudge([*HONEST, more], stored).findings().violations)


def test_the_judge_has_nothing_against_a_history_in_which_only_a_plain_read_is_lost():
    assert violations() == ""


GONE = operation("gone", put(2, 9))
EARLIER = operation("earlier", put(2, 9))
UNFOUNDED = operation("unfounded", put(2, 9), Check(KEYS[2], None))
PLANTED: dict[str, tuple[str, list[Note]]] = {
    "an acknowledged commit": ("was acknowledged, and stored is None", [GONE, made(GONE, LOST, 5, 6)]),
    "a refusal by what was lost": (
        "its checks hold in every state",
        [UNFOUNDED, Answer(UNFOUNDED.mark, "refused", b"", (0,), 5, 6)],
    ),
    "a settled read": ("a settled read", [look(LOST, [], 5, settled=True)]),
    "a read of the past": ("is behind an acknowledged commit", [look(FIRST, [row(0, 1, FIRST)], 5)]),
    "a torn read": ("does not equal the replayed prefix", [look(SECOND, [row(0, 1, FIRST)], 5)]),
    "a version that was given twice": ("was given twice", [look(LOST, [row(0, 7, FIRST)], 5)]),
    "a commit below what its process has read": (
        "what its process has read before",
        [look(LOST, [], 0), EARLIER, made(EARLIER, SECOND, 0.1, 0.2)],
    ),
    "a commit below an earlier one": ("not above what was acknowledged", [EARLIER, made(EARLIER, FIRST, 5, 6)]),
    "a position": ("the position", [Fed(stamp(1), stamp(LOST), [])]),
    "a position that goes back": ("a feed goes back", [Fed(stamp(LAST), stamp(SECOND), [])]),
    "a change of a feed": ("which is gone", [Fed(stamp(1), stamp(LAST), [(KEYS[2], stamp(LOST))])]),
    "the order of a feed": (
        "a feed goes back",
        [Fed(stamp(1), stamp(LAST), [(KEYS[1], stamp(SECOND)), (KEYS[0], stamp(FIRST))])],
    ),
    "a missed change of a feed": ("a feed has missed", [Fed(stamp(1), stamp(LAST), [(KEYS[0], stamp(FIRST))])]),
    "an entry of a watch": ("a watch has delivered", [Watched([entry(2, 9, LOST)])]),
    "a value of a watch": ("a watch has delivered", [Watched([entry(0, 7, FIRST)])]),
    "a missed change of a watch": ("a watch has missed", [Watched([entry(0, 1, FIRST)])]),
    "a claim": ("and the number is that of None", [Claimed(2, "a", "made")]),
    "a claim of two": ("and the number is that of a", [Claimed(1, "b", "made")]),
    "a refused claim": ("and the number is free", [Claimed(2, "a", "refused")]),
    "a claim that was not made": ("was not to be made", [Claimed(1, "a", "not made")]),
    "an operation that was not made": (
        "was not to be applied",
        [Answer(ONE.mark, "not made", b"", (), 1, 2)],
    ),
}
"""By what is taken back: a part of the finding, and the notes of the process that has seen it."""


@pytest.mark.parametrize("planted", PLANTED)
def test_the_judge_finds_a_planted_violation(planted: str):
    text, notes = PLANTED[planted]
    assert text in violations(*notes)


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (STORED._replace(chain=[*STORED.chain[:2], (SECOND, 1), (LAST, SECOND)]), "is stored behind"),
        (
            STORED._replace(marks={ONE.mark: stamp(SECOND), **dict([*STORED.marks.items()][1:])}),
            "was acknowledged, and",
        ),
        (STORED._replace(final=ReadResult([[]], [], stamp(LAST))), "does not equal the replayed prefix"),
    ],
    ids=["the chain", "another version", "the final state"],
)
def test_the_judge_finds_a_violation_in_what_is_stored(stored: Stored, text: str):
    assert text in violations(stored=stored)


def test_the_notes_of_a_process_that_was_killed_are_read_up_to_the_torn_one(tmp_path: Path):
    path = tmp_path / "1.notes"
    journal = Journal(path)
    journal.note(ONE)
    journal.note(TWO)
    journal.close()
    whole = path.read_bytes()
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        assert notes_of(path) == [ONE, TWO][: len(notes_of(path))]
    path.write_bytes(whole)
    assert notes_of(path) == [ONE, TWO]
