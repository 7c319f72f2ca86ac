"""Every column that needs no peer runs every row and passes its checks; a column that errs does not."""

from __future__ import annotations

import weakref
from typing import ClassVar

import pytest

from benchmarks.columns.floor_memory import MemoryFloor
from benchmarks.columns.floor_records import Record
from benchmarks.columns.registry import COLUMNS
from benchmarks.rounds import Plan, WrongAnswerError, dumped, measure, run_in_turns, run_row
from benchmarks.rows import READS, ROWS, WRITES
from benchmarks.worker import PIECE
from benchmarks.workload import Operations, Truth, drawn, in_turns
from tests.benchmarks.in_process import WORKLOAD, contestant_of, made_of, one_round

OWN = [column for column in COLUMNS.values() if column.family in ("kvmodels", "kvmodels async", "floor")]
# Measured from outside, or with further processes.
ELSEWHERE = {"import", "contend_processes"}


@pytest.mark.parametrize(
    "column",
    # Durability is an option of the engine: a column is the same code with each.
    [pytest.param(one, id=one.name, marks=[pytest.mark.servers] if one.durability == "relaxed" else []) for one in OWN],
)
def test_a_column_runs_every_row_and_passes_every_check(column, tmp_path):
    contestant = one_round(column, tmp_path)
    files = {"disk", "open", "first_open"} if column.durability == "memory" else set()
    assert set(contestant.figures) == {row.name for row in ROWS} - ELSEWHERE - files
    for row, sample in contestant.figures.items():
        assert sample is not None
        assert sample[1] > 0, row


@pytest.mark.parametrize(
    "name",
    [
        "floor-sqlite-relaxed",
        "deno-kv-sqlite-commit",
        # Its five processes import the library, one after another on a small machine.
        pytest.param("kvmodels-async-sqlite-commit", marks=pytest.mark.soak),
    ],
)
@pytest.mark.servers
def test_a_column_in_processes_of_its_own_loses_no_increment_of_four(name):
    told: list[str] = []
    plan = Plan((COLUMNS[name],), WORKLOAD, rounds=1, row_seconds=0.05, progress=told.append)
    figures = measure(plan)
    (sample,) = figures["contend_processes"][name]
    assert sample is not None
    assert sample[1] > 0
    assert told[0] == "round 1 of 1"


class Watched(MemoryFloor):
    """Counts the objects that somebody still holds."""

    alive: ClassVar[list[weakref.ref[Record]]] = []
    most = 0

    @classmethod
    def watch(cls, record: Record) -> Record:
        cls.alive = [one for one in cls.alive if one() is not None]
        cls.alive.append(weakref.ref(record))
        cls.most = max(cls.most, len(cls.alive))
        return record

    def get(self, key):
        return self.watch(super().get(key))

    def list_colour(self, colour):
        return [self.watch(record) for record in super().list_colour(colour)]


def test_what_a_row_has_read_is_compared_in_pieces_and_let_go(tmp_path):
    workload = drawn(50, Operations(get=3 * PIECE + 1, lists=5))
    largest = max(len(users) for users in Truth(workload.users).by_colour().values())
    with contestant_of(made_of(Watched, COLUMNS["floor-memory"]), tmp_path) as contestant:
        contestant.process.ask("load", path=str(dumped(workload, tmp_path / "main.json")))
        contestant.open(tmp_path)
        contestant.process.ask("bulk")
        plan = Plan((contestant.column,), workload, row_seconds=60)
        for row, units, most in (("get", 3 * PIECE + 1, PIECE), ("list_colour", 5 * 50, largest)):
            Watched.most = 0
            run_row(contestant, row, plan)
            assert Watched.most == most
            sample = contestant.figures[row]
            assert sample is not None
            assert sample[1] == units


class Told:
    """Passes requests on, and tells who was asked for which part."""

    def __init__(self, name, process, told) -> None:
        self.name, self.process, self.told = name, process, told

    def ask(self, do, **arguments):
        self.told.append((self.name, arguments.get("part")))
        return self.process.ask(do, **arguments)


def test_columns_take_turns_with_a_row_of_writes_and_all_turns_count(tmp_path):
    workload = in_turns(drawn(50, Operations(get=30, update=10)), WRITES, 5)
    told: list[tuple[str, int | None]] = []
    with (
        contestant_of(COLUMNS["floor-memory"], tmp_path) as one,
        contestant_of(COLUMNS["floor-memory"], tmp_path) as two,
    ):
        for name, contestant in (("one", one), ("two", two)):
            contestant.process.ask("load", path=str(dumped(workload, tmp_path / "main.json")))
            contestant.open(tmp_path)
            contestant.process.ask("bulk")
            contestant.process = Told(name, contestant.process, told)
        plan = Plan((one.column, two.column), workload, row_seconds=300)
        for row, units, turns in (("get", 30, 1), ("update_plain", 10, 5)):
            told.clear()
            run_in_turns([one, two], row, plan)
            assert told == [(name, part) for part in range(turns) for name in ("one", "two")]
            assert [(contestant.figures[row] or [0, 0])[1] for contestant in (one, two)] == [units, units]


def test_calls_in_turns_are_the_same_calls():
    drawn_once = drawn(50, Operations(get=30, update=10, insert=15, delete=3))
    turned = in_turns(drawn_once, WRITES, 5)
    for row in READS:
        assert turned.arguments[row] == drawn_once.arguments[row]
    for row in WRITES:
        assert [call for part in turned.arguments[row] for call in part] == drawn_once.arguments[row][0]
    assert {row: len(turned.arguments[row]) for row in WRITES} == {**dict.fromkeys(WRITES, 5), "delete": 3}


class OneShortOfAPage(MemoryFloor):
    def page(self, colour):
        return super().page(colour)[:-1]


class AnotherRecord(MemoryFloor):
    def get(self, key):
        return super().get(1)


class StaleAddress(MemoryFloor):
    def update_unique(self, key, email):
        record = super().update_unique(key, email)
        self._emails.pop(email)
        return record


class EntryLeftBehind(MemoryFloor):
    def update_indexed(self, key, colour):
        before = self.get(key)
        record = super().update_indexed(key, colour)
        self._colours[before.colour, key] = None
        return record


class DeletesNothing(MemoryFloor):
    def delete(self, key):
        return self.get(key)


class TakesTakenAddresses(MemoryFloor):
    def _put(self, record, data):
        self._emails.pop(record.email, None)
        super()._put(record, data)


class LosesIncrements(MemoryFloor):
    def increment(self, key):
        record = self.get(key)
        return record if record.age % 3 == 0 else super().increment(key)


class CountsOneMore(MemoryFloor):
    def count(self, colour):
        return super().count(colour) + 1


class ForgetsAField(MemoryFloor):
    def fields(self, obj):
        return super().fields(obj)._replace(bio="")


@pytest.mark.parametrize(
    "session",
    [
        OneShortOfAPage,
        AnotherRecord,
        StaleAddress,
        EntryLeftBehind,
        DeletesNothing,
        TakesTakenAddresses,
        LosesIncrements,
        CountsOneMore,
        ForgetsAField,
    ],
)
def test_a_column_that_errs_ends_the_run(session, tmp_path):
    with pytest.raises((WrongAnswerError, KeyError)):
        one_round(made_of(session, COLUMNS["floor-memory"]), tmp_path)


def test_the_truth_follows_every_kind_of_write():
    truth = Truth(WORKLOAD.users)
    user = WORKLOAD.users[0]
    truth.apply("update_plain", [[user.id, "New"]])
    truth.apply("update_indexed", [[user.id, "red"]])
    truth.apply("update_unique", [[user.id, "new@example.org"]])
    truth.add_years(user.id, 3)
    assert truth.by_colour()["red"][0] == user._replace(
        name="New", colour="red", email="new@example.org", age=user.age + 3
    )
    truth.apply("delete", [[user.id]])
    assert len(truth) == len(WORKLOAD.users) - 1
