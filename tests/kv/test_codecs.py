"""The codec is chosen when a store is opened: for values, and for everything that models store."""

from __future__ import annotations

import io
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels import (
    ULID,
    AsyncDatabase,
    Database,
    DecodeError,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvMap,
    KvModel,
    Max,
    Min,
    PrimaryKey,
    Unique,
    UniqueViolationError,
    open_async_kv,
    open_kv,
)
from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.operations import ReadRange, ReadResult
from tests.unit.encoding.graphs import isomorphic, trees

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MAX_SAFE = 2**53 - 1


class Part(KvModel, collection="codec_parts"):
    id: PrimaryKey[int]
    label: Unique[str]
    weight: Indexed[float]
    count: Indexed[int]
    made: Indexed[date]
    key: UUID
    ulid: ULID
    price: Decimal
    seen: datetime
    lasts: timedelta
    raw: bytes
    flags: set[int]
    sizes: dict[int, float]
    names: list[str | None]
    point: tuple[int, float]
    either: int | float | str
    maybe: int | None
    anything: Any


parts = st.builds(
    Part,
    id=st.integers(-(2**70), 2**70),
    label=text,
    weight=st.floats(allow_nan=False),
    count=st.one_of(st.integers(), st.sampled_from([MAX_SAFE, MAX_SAFE + 1, -MAX_SAFE, 2**31, -(2**31) - 1])),
    made=st.dates(),
    key=st.uuids(),
    ulid=st.builds(ULID),
    price=st.decimals(allow_nan=False, allow_infinity=False, places=2),
    seen=st.datetimes().map(lambda at: at.replace(fold=0)),  # a Date is an instant, and has no fold
    lasts=st.timedeltas(timedelta(days=-1000), timedelta(days=1000)),
    raw=st.binary(max_size=8),
    flags=st.sets(st.integers(), max_size=4),
    sizes=st.dictionaries(st.integers(), st.floats(allow_nan=False), max_size=4),
    names=st.lists(st.none() | text, max_size=4),
    point=st.tuples(st.integers(), st.floats(allow_nan=False)),
    either=st.one_of(st.integers(), st.floats(allow_nan=False), text),
    maybe=st.none() | st.integers(),
    anything=st.one_of(st.integers(), st.floats(allow_nan=False), text, st.lists(st.integers() | st.just(1.0))),
)


@given(part=parts)
def test_a_model_comes_back_with_the_types_of_its_fields(part: Part):
    with Database(models=[Part], codec="v8") as db:
        db[Part].insert(part)
        for found in (db[Part].get(part.id), db[Part].get(label=part.label), db[Part].filter(count=part.count)[0]):
            assert found == part
            assert [type(value) for value in found.__dict__.values()] == [
                type(value) for value in part.__dict__.values()
            ]
            assert [type(value) for value in found.sizes] == [int] * len(part.sizes)
        assert db.check().ok


def test_a_datetime_field_reads_a_date_that_deno_has_written():
    class Visit(KvModel, collection="codec_visits"):
        id: PrimaryKey[int]
        at: Indexed[datetime]
        left: datetime | int | None = None
        seen: datetime | None = None

    early, late = datetime(2026, 1, 2, 3, 4, 5, 6_000, UTC), datetime(2026, 1, 3, tzinfo=UTC)
    with Database(models=[Visit], codec="v8") as db:
        visits = db[Visit]
        visits.create(id=1, at=late)
        db.kv.unsafe().set(("codec_visits", 2), {"id": 2.0, "at": early, "left": late, "seen": early})
        assert db.check(repair=True).repaired
        assert [(visit.at, visit.left) for visit in visits.order_by("at")] == [(early, late), (late, None)]
        found = visits.get(2)
        assert visits.filter(at__lt=late).to_list() == visits.filter(left=late).allow_scan().to_list() == [found]
        assert visits.filter(id=2).values_list("at").to_list() == [(early,)]
        assert visits.filter(id=2).aggregate(Min("at"), Max("at")) == {"at__min": early, "at__max": early}
        assert visits.order_by("-seen").sort_in_memory().first() == found
        visits.save(found)
        assert db.kv.get(("codec_visits", 2)).value["at"] == early.isoformat()
        assert db.check().ok


@pytest.mark.parametrize("at", [datetime.min, datetime.max])
def test_a_datetime_whose_utc_leaves_the_years_of_python_is_refused_by_v8_before_it_is_stored(at: datetime):
    """It was stored as a Date, and then neither a get, nor a listing, nor a dump could read the store."""
    beyond = at.replace(microsecond=0, tzinfo=timezone(timedelta(hours=1 if at.year == 1 else -1)))
    within = at.replace(microsecond=0, tzinfo=UTC)
    with open_kv(codec="v8") as kv:
        with pytest.raises(InvalidValueError) as caught:
            kv.set(("a",), {"seen": [beyond]})
        assert (caught.value.path, caught.value.type) == ("$.seen[0]", "datetime")
        kv.set(("a",), {"seen": [within]})
        assert [entry.value for entry in kv.list(())] == [{"seen": [within]}]
        kv.dump(io.StringIO())


def test_everything_that_a_database_stores_is_of_its_codec():
    class Note(KvModel, collection="codec_notes"):
        id: PrimaryKey[int]
        title: Unique[str]
        tag: Indexed[str]

    with Database(models=[Note], codec="v8") as db:
        notes = db[Note]
        first = notes.create(id=1, title="a", tag="x")
        with pytest.raises(UniqueViolationError):
            notes.create(id=2, title="a", tag="x")
        notes.patch(1, tag="y")
        notes.get_or_create(id=2, defaults={"title": "b", "tag": "x"})
        notes.remove(2)
        assert notes.refresh(first).tag == "y"
        assert notes.filter(tag="y").to_list() == [first]
        assert db.check(repair=True).ok
        everything = ReadRange(b"", b"\xff", limit=1000)
        found = db._engine.read([everything])
        assert isinstance(found, ReadResult)
        encodings = {row.encoding for row in found.ranges[0]}
    assert encodings == {1, 3}


async def test_the_asynchronous_ones_take_the_codec_too(tmp_path: Path):
    path = tmp_path / "store.db"
    async with AsyncDatabase(path, models=[Part], codec="v8") as db:
        assert await db[Part].all().count() == 0
        await db.kv.set(("a",), {1: KvMap({"b": 1.0})})
    async with open_async_kv(path, codec="v8") as kv:
        entry = await kv.get(("a",))
        assert entry.value == {1: {"b": 1.0}}
        assert type(entry.value[1]) is KvMap


@pytest.mark.parametrize(("written", "opened"), [("msgpack", "v8"), ("v8", "msgpack")])
def test_a_store_of_another_codec_says_how_to_open_it(tmp_path: Path, written: str, opened: str):
    path = tmp_path / "store.db"
    with open_kv(path, codec=written) as kv:
        kv.set(("a",), [1])
    with open_kv(path, codec=opened) as kv, pytest.raises(DecodeError, match=f'codec="{written}"') as caught:
        kv.get(("a",))
    assert caught.value.key == ("a",)


@given(value=trees)
def test_any_value_goes_through_a_store(value: Any):
    with open_kv(codec="v8") as kv:
        kv.set(("a",), value)
        assert isomorphic(kv.get(("a",)).value, value)


def test_an_unknown_codec_names_the_known_ones():
    with pytest.raises(InvalidArgumentError) as caught:
        Database(codec="json")
    assert caught.value.expected == ("msgpack", "v8")


WITHOUT_PACKAGE = """
import sys
sys.modules["v8serialize"] = None
from kvmodels import Database, UnsupportedError, open_kv
open_kv().close()
for make in (open_kv, Database):
    try:
        make(codec="v8")
    except UnsupportedError as error:
        print(error.hint)
"""


def test_without_its_package_the_codec_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT_PACKAGE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["Install it: pip install 'kvmodels[v8-codec]'."] * 2


# -- records that JavaScript wrote


class Sample(KvModel, collection="codec_samples"):
    id: PrimaryKey[int]
    count: Indexed[int]
    ratio: Indexed[float]
    stamp: int
    either: float | UUID


def test_records_that_javascript_wrote_are_read_and_indexed():
    # As JSON-like numbers of JavaScript: integral ones without a mark, above 32 bits as doubles.
    written = V8Codec().encode({"id": 1.0, "count": 2.0**40, "ratio": 3.0, "stamp": 1_700_000_000_000.0, "either": 5.0})
    assert written[1] == 1
    with Database(models=[Sample], codec="v8") as db:
        db.kv.unsafe().set(("codec_samples", 1), V8Codec().decode(*written))
        assert not db.check(repair=False).ok
        assert len(db.check(repair=True).repaired) == 2
        assert db.check().ok
        [found] = db[Sample].filter(count=2**40).to_list()
        assert found == Sample(id=1, count=2**40, ratio=3.0, stamp=1_700_000_000_000, either=5.0)
        assert [type(value) for value in found.__dict__.values()] == [int, int, float, int, float]
        db[Sample].patch(1, ratio=4.0)
        assert db.check().ok
