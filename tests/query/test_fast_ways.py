"""Every fast kind gives what the general code gives: answers, errors, objects, committed operations, stored rows.

Random stories over models of every kind are told twice: as they are, and by the general code alone. Each fast kind has
tests of its own; these find what happens between them, and between a model and a value that nobody has thought of.
Every fast kind obeys ``kvmodels._support.switches``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from kvmodels import AsyncDatabase, Count, Database, Q
from kvmodels._support import switches
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Delete,
    ReadRange,
    ReadResult,
    Removal,
    Row,
)
from kvmodels.engines.contract import Capabilities, Engine, WriteCalls
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.instances import PendingStamp, state_of
from tests.passing_engine import PassingEngine
from tests.query.fast_ways_models import KINDS, Kind

NOW: Final = 1_700_000_000_000


@contextmanager
def general_code() -> Iterator[None]:
    """No fast kind is used by the databases that are opened meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(switches, "fast_kinds", False)
        yield


class Step:
    """One thing to do: numbers choose its values."""

    def __init__(self, kind: Kind, drawn: tuple[str, int, dict[int, int], int]) -> None:
        self.verb, key, fields, self.number = drawn
        self.kind = kind
        self.key = kind.key(key)
        names = kind.fields
        self.fields = {names[at % len(names)]: kind.value(names[at % len(names)], n) for at, n in fields.items()}
        if self.number % 29 == 28:
            self.fields["nothing"] = 1

    def as_verb(self, verb: str) -> Step:
        """The same with another verb."""
        other = copy(self)
        other.verb = verb
        return other

    @property
    def new(self) -> Any:
        """An object that nobody has validated."""
        return self.kind.model.model_construct(**{**self.kind.fields_of_key(self.key), **self.fields})

    def change(self, one: Any) -> None:
        vars(one).update({name: value for name, value in self.fields.items() if name in self.kind.fields})

    def lookups(self, most: int = 9) -> dict[str, Any]:
        return dict([*self.fields.items(), ("x", "d")][:most])


Run = Callable[[Any], Any]
"""Gives the result of a call, which in an event loop is awaited."""


def created(records: Any, step: Step, run: Run) -> Any:
    return run(records.create(**{**step.kind.fields_of_key(step.key), **step.fields}))


def replaced(records: Any, step: Step, run: Run) -> Any:
    return run(records.mutate(step.key, lambda one: one.model_copy(update=step.fields)))


def saved(records: Any, step: Step, run: Run) -> Any:
    held = run(records.get_or_none(step.key)) or step.new
    if step.number % 3 == 0:
        run(records.patch(held.pk, n=held.n))  # the object is behind then
    step.change(held)
    try:
        return run(records.save(held, force=step.number % 4 == 1))
    except Exception as error:  # noqa: BLE001 - every error is compared, and what it leaves of the object
        return told(error), told(held)


def saved_new(records: Any, step: Step, run: Run) -> Any:
    one = step.new
    try:
        return run(records.insert(one) if step.number % 2 else records.save(one))
    except Exception as error:  # noqa: BLE001 - as above
        return told(error), told(one)


def bulk_created(records: Any, step: Step, run: Run) -> Any:
    others = [Step(step.kind, ("", number, {0: number} if number % 2 else {}, 0)).new for number in range(3)]
    objects = [step.new, *others]
    try:
        conflict = ("error", "ignore", "update", "error")[step.number % 4]
        size = 2 if step.number % 3 == 0 else None
        return run(records.bulk_create(objects, on_conflict=conflict, batch_size=size)), told(objects)
    except Exception as error:  # noqa: BLE001 - as above
        return told(error), told(objects)


def bulk_updated(records: Any, step: Step, run: Run) -> Any:
    objects = run(records.all().to_list())[:3]
    for one in objects:
        step.change(one)
    return run(records.bulk_update(objects)), told(objects)


def removed_object(records: Any, step: Step, run: Run) -> Any:
    held = run(records.get(step.key))
    return run(records.remove(held)), told(held)


def kept_in_time(records: Any, step: Step, run: Run) -> Any:
    """A record that expires keeps its deadline, whatever changes it."""
    changed = [run(records.patch(step.key, expire_in=60)), run(records.patch(step.key, **step.fields))]
    if step.number % 3:
        changed.append(run(records.mutate(step.key, step.change)))
    return changed, run(records.remove(step.key)) if step.number % 5 == 0 else None


def found_again(records: Any, step: Step, run: Run) -> Any:
    """A record by each of its values, and by values that only look like them."""
    held = run(records.get(step.key))
    found: list[Any] = []
    for name in step.kind.fields:
        value = vars(held).get(name)
        others = [value, value.swapcase()] if isinstance(value, str) else [value]
        for one in others:
            try:
                found.append(told(run(records.get_or_none(**{name: one}))))
            except Exception as error:  # noqa: BLE001 - every error is compared
                found.append(told(error))
    return found


def written_and_counted(records: Any, step: Step, run: Run) -> Any:
    """Count records that were written just before, in a transaction too."""
    before = [run(records.all().count()), run(records.filter(x=step.fields.get("x", "d")).exists())]
    written = outcome(records, step.as_verb("remove" if step.number % 3 == 0 else "save new"), run)
    queries = (records.all(), records.filter(x=step.fields.get("x", "d")))
    return before, written, [(run(one.count()), run(one.exists()), told(run(one.first()))) for one in queries]


def queried(records: Any, step: Step, run: Run) -> Any:
    """A query of any form, and one of its ends."""
    number, query = step.number, records.all()
    for place, (name, value) in enumerate(step.fields.items()):
        form = (number + place) % 7
        if form < 4:
            query = query.filter(**{name: value})
        elif form == 4:
            query = query.filter(**{f"{name}__in": [value, step.kind.value(name, 0)]})
        elif form == 5:
            query = query.filter(**{f"{name}__isnull": bool(number % 2)})
        else:
            query = query.filter(Q(**{name: value}) | Q(x="d"))
    if number % 5 == 1:
        query = query.order_by(("-" if number % 2 else "") + step.kind.fields[number % len(step.kind.fields)])
    if number % 7 == 2:
        query = query.reverse()
    if number % 3 == 0:
        query = query.allow_scan().sort_in_memory(limit=100)
    if number % 4 == 3:
        query = query[number % 3 : number % 3 + 2]
    ends: tuple[Callable[[], Any], ...] = (
        query.to_list,
        query.count,
        query.exists,
        query.first,
        query.last,
        lambda: query.page(size=2),
        lambda: query.values_list("x").distinct().count(),
        lambda: query.values_list("x", "pk").to_list(),
        lambda: query.aggregate(Count()),
    )
    return run(ends[number % len(ends)]())


VERBS: Final[dict[str, Callable[[Any, Step, Run], Any]]] = {
    "create": created,
    "patch": lambda records, step, run: run(records.patch(step.key, **step.fields)),
    "mutate": lambda records, step, run: run(records.mutate(step.key, step.change)),
    "replace": replaced,
    "save": saved,
    "save new": saved_new,
    "remove": lambda records, step, run: run(records.remove(step.key)),
    "remove object": removed_object,
    "expire": lambda records, step, run: run(records.patch(step.key, expire_in=60 if step.number % 4 else 0.001)),
    "get": lambda records, step, run: run(records.get(step.key)),
    "get by values": lambda records, step, run: run(records.get(**step.lookups(1 + step.number % 3))),
    "get or none": lambda records, step, run: run(records.get_or_none(u=step.lookups().get("u", "a"))),
    "get many": lambda records, step, run: run(records.in_bulk([step.key, *map(step.kind.key, range(3))])),
    "get or create": lambda records, step, run: run(
        records.get_or_create(u=step.kind.value("u", step.number), defaults=step.kind.fields_of_key(step.key))
    ),
    "bulk create": bulk_created,
    "bulk update": bulk_updated,
    "update all": lambda records, step, run: run(records.all().update(**step.fields)),
    "keep in time": kept_in_time,
    "find again": found_again,
    "write and count": written_and_counted,
    "query": queried,
}
REPEATED: Final = (
    *VERBS,
    "create",
    "create",
    "patch",
    "save",
    "keep in time",
    "find again",
    "write and count",
    "query",
    "query",
    "query",
    "get by values",
)
FOREIGN: Final = ("field", "order", "unknown", "version", "type", "gone", "shape")


def spoil(db: Database, step: Step) -> str:
    """Do to one record what only another program, or damage, does."""
    kv, collection = db.kv.unsafe(), schema_of(step.kind.model).collection
    rows = list(kv.list((collection,)))
    if not rows:
        return "nothing"
    row, damage = rows[step.number % len(rows)], FOREIGN[step.number % len(FOREIGN)]
    value: Any = row.value
    if damage == "gone":
        kv.delete(row.key)
    elif not isinstance(value, dict):
        kv.set(row.key, {})
    elif damage == "shape":
        kv.set(row.key, [*value])
    elif damage == "field":
        kv.set(row.key, {name: one for name, one in value.items() if name != "n"})
    elif damage == "order":
        kv.set(row.key, dict(reversed(value.items())))
    else:
        reserved = {**value.get("$kv", {}), "v": 1 + step.number % 2 * 8}
        more: dict[str, Any] = {"unknown": {"more": [1]}, "version": {"$kv": reserved}, "type": {"u": [7]}}
        kv.set(row.key, {**value, **more[damage]})
    return damage


def told(found: Any) -> Any:
    """Return the comparable parts of a result, with the state of objects, or of an error, with its attributes."""
    if isinstance(found, Exception):
        said = {name: repr(getattr(found, name)) for name in getattr(found, "attributes", ()) if name != "elapsed_s"}
        return type(found), str(found) if "elapsed_s" not in str(found) else "", said, getattr(found, "__notes__", None)
    if isinstance(found, BaseModel):
        state: Any = state_of(found)
        stamp = None if state is None else state.versionstamp
        shown = "pending" if isinstance(stamp, PendingStamp) else stamp
        kept = None if state is None else (shown, state.value, state.expire_at, repr(state.key), dict(state.unknown))
        inside = {name: (type(value), repr(value)) for name, value in vars(found).items()}
        return type(found), inside, found.model_fields_set, repr(found.__pydantic_extra__), kept
    if isinstance(found, (list, tuple)):
        return [told(one) for one in found]
    if isinstance(found, dict):
        return {repr(name): told(value) for name, value in found.items()}
    if hasattr(found, "items") and hasattr(found, "next_cursor"):
        return told(found.items), found.next_cursor, found.previous_cursor
    if hasattr(found, "__dataclass_fields__"):
        return type(found), {name: told(getattr(found, name)) for name in found.__dataclass_fields__}
    return repr(found)


def outcome(records: Any, step: Step, run: Run) -> Any:
    try:
        return told(VERBS[step.verb](records, step, run))
    except Exception as error:  # noqa: BLE001 - every error is compared
        return told(error)


class Recorder(PassingEngine):
    """Remembers the operations that were applied; their parts may come in any order."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.applied: list[Any] = []

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        outcome = super().commit(write)
        if isinstance(outcome, Committed):
            self.applied.append((sorted(map(repr, write.checks)), sorted(map(repr, write.mutations))))
        return outcome

    @property
    def rows(self) -> list[Row]:
        found = self.read([ReadRange(b"", b"\xff")], include_expired=True)
        assert isinstance(found, ReadResult)
        return found.ranges[0]


class RemovingRecorder(Recorder):
    """A removal is remembered as the operation that removes the rows which were there before; nobody else writes."""

    def __init__(self, inner: SqliteEngine) -> None:
        super().__init__(inner)
        self._remover = inner

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(self.traits, writes=WriteCalls(remove=self.remove))

    def remove(self, removal: Removal) -> Committed | Conflict:
        before = [row for row in self.rows if row.key == removal.key]
        outcome = self._remover.remove(removal)
        if isinstance(outcome, Committed):
            (row,) = before
            keys = [row.key, *(removal.entries(row.key, row.value, row.encoding) or ())]
            checks = [removal.check, Check(row.key, row.versionstamp, physical=True)]
            self.applied.append((sorted(map(repr, checks)), sorted(repr(Delete(key)) for key in keys)))
        return outcome


def recorded(engine: Engine) -> Recorder:
    return RemovingRecorder(engine) if isinstance(engine, SqliteEngine) else Recorder(engine)


def told_story(engine: Recorder, kind: Kind, steps: list[Step]) -> list[Any]:
    outcomes: list[Any] = []
    with Database.from_engine(engine, DatabaseCore((kind.root,))) as db:
        rest = iter(steps)
        for step in rest:
            if step.verb == "foreign":
                outcomes.append(spoil(db, step))
            elif step.verb == "transaction":
                inside: list[Any] = []
                try:
                    with db.transaction() as tx:
                        for _, one in zip(range(3), (one for one in rest if one.verb in VERBS), strict=False):
                            inside.append(outcome(tx[kind.model], one, lambda result: result))
                except Exception as error:  # noqa: BLE001 - every error is compared
                    inside.append(told(error))
                outcomes.append(inside)
            else:
                outcomes.append((step.verb, outcome(db[kind.model], step, lambda result: result)))
        outcomes.append([tuple(row) for row in engine.rows])
    return [*outcomes, engine.applied]


def told_story_of_a_loop(engine: Engine, kind: Kind, steps: list[Step]) -> list[Any]:
    outcomes: list[Any] = []
    with asyncio.Runner() as loop:

        async def settled(result: Any) -> Any:
            return await result

        db = AsyncDatabase.from_engine(engine, DatabaseCore((kind.root,)))
        for step in steps:
            if step.verb in VERBS:
                outcomes.append((step.verb, outcome(db[kind.model], step, lambda result: loop.run(settled(result)))))
        found = engine.read([ReadRange(b"", b"\xff")], include_expired=True)
        assert isinstance(found, ReadResult)
        outcomes.append([tuple(row) for row in found.ranges[0]])
        loop.run(db.close())
    return outcomes


def is_same(short: Any, full: Any) -> bool:
    """Of two records that cannot be read, a fast way may name the other one; everything else is equal."""
    return short == full or (unreadable(short) and unreadable(full))


def unreadable(one: Any) -> bool:
    return "DecodeError" in repr(one)


NUMBERS: Final = st.one_of(st.integers(0, 2), st.integers(0, 2), st.integers(0, 40))
DRAWN: Final = st.tuples(
    st.sampled_from([*REPEATED, "foreign", "transaction"]),
    NUMBERS,
    st.dictionaries(st.integers(0, 3), NUMBERS, max_size=3),
    st.integers(0, 2_520),
)


def stories(kind: Kind, drawn: list[Any]) -> list[Step]:
    begun = [Step(kind, ("create", number, {0: number, 1: number % 2}, 0)) for number in range(4)]
    return [*begun, *(Step(kind, one) for one in drawn)]


def compared(tell: Callable[[], list[Any]], kind: Kind) -> None:
    short = tell()
    with general_code():
        full = tell()
    for one, other in zip(short, full, strict=True):
        assert is_same(one, other)


@given(st.sampled_from(KINDS), st.lists(DRAWN, min_size=12, max_size=24))
def test_both_ways_tell_the_same_in_memory(kind: Kind, drawn: list[Any]):
    steps = stories(kind, drawn)
    compared(lambda: told_story(Recorder(MemoryEngine(clock=lambda: NOW)), kind, steps), kind)


def opened(name: str, path: Path) -> Engine:
    if name == "lmdb":
        return LmdbEngine(path, clock=lambda: NOW, durability="relaxed")
    return SqliteEngine(path, clock=lambda: NOW, durability="relaxed")


@pytest.mark.parametrize("in_loop", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("engine", ["sqlite", "lmdb"])
def test_both_ways_tell_the_same_in_a_file(engine: str, in_loop: bool):
    @settings(max_examples=7, deadline=None)
    @given(st.sampled_from(KINDS), st.lists(DRAWN, min_size=12, max_size=24))
    def compare(kind: Kind, drawn: list[Any]) -> None:
        steps = stories(kind, drawn)

        def tell() -> list[Any]:
            with TemporaryDirectory() as folder:
                inner = opened(engine, Path(folder) / "store")
                return told_story_of_a_loop(inner, kind, steps) if in_loop else told_story(recorded(inner), kind, steps)

        compared(tell, kind)

    compare()
