"""Values that their text would change come back as they were written, or are refused before the write."""

from __future__ import annotations

import io
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, NaiveDatetime
from pydantic.dataclasses import dataclass

from kvmodels import Database, InvalidValueError, KvModel, PrimaryKey, open_kv
from kvmodels.codecs.typed_json import value_from_json, value_to_json

BERLIN = ZoneInfo("Europe/Berlin")
HALF_SECOND = timezone(timedelta(microseconds=500_000))


class NoOffset(tzinfo):
    """A time zone that does not know its offset, which makes a datetime naive for Python."""

    def utcoffset(self, _at: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


@dataclass(config=ConfigDict(extra="allow"))
class Place:
    name: str

    @cached_property
    def shout(self) -> str:
        return self.name.upper()


class Opening(BaseModel):
    at: time | None = None


class Diary(KvModel, collection="changed_diaries"):
    id: PrimaryKey[int]
    at: datetime | None = None
    local: NaiveDatetime | None = None
    hour: time | None = None
    several: list[datetime] = []
    hours: dict[str, Opening] = {}
    seen: dict[datetime, int] = {}
    days: set[datetime] = set()
    place: Place | None = None
    anything: Any = None


def exact(value: Any) -> Any:
    """Return the parts of a value that ``==`` does not compare; a time zone counts as its offset."""
    if isinstance(value, (datetime, time)):
        offset = value.utcoffset()
        return type(value), value.isoformat(), value.fold if offset is None else None
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return exact(value.__dict__) if isinstance(value, BaseModel) else value


ZONES = st.one_of(
    st.none(),
    st.sampled_from([UTC, BERLIN, NoOffset(), HALF_SECOND]),
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone),
    st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds))),
)
MOMENTS = st.builds(
    lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold),
    st.datetimes() | st.just(datetime(2026, 10, 25, 2, 30)),
    ZONES,
    st.sampled_from([0, 1]),
)
HOURS = st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.times(), ZONES, st.sampled_from([0, 1]))
DIARIES = st.fixed_dictionaries(
    {},
    optional={
        "at": MOMENTS,
        "local": MOMENTS.map(lambda at: at.replace(tzinfo=None)),
        "hour": HOURS,
        "several": st.lists(MOMENTS, max_size=2),
        "hours": st.dictionaries(st.sampled_from("ab"), HOURS.map(lambda at: Opening(at=at)), max_size=2),
    },
)


def refusal(diaries: Any, made: Diary) -> str | None:
    """The path that the error of a write names; None when it was written."""
    try:
        diaries.insert(made)
    except InvalidValueError as error:
        return error.path or "nowhere"
    return None


@pytest.mark.parametrize("codec", ["msgpack", "v8"])
@given(fields=DIARIES)
def test_every_date_and_time_comes_back_as_it_was_or_is_refused_with_its_path(codec: str, fields: dict[str, Any]):
    with Database("memory://", models=[Diary], codec=codec) as db, Database("memory://", codec=codec) as copy:
        diaries = db[Diary]
        made = Diary(id=1, **fields)
        if (path := refusal(diaries, made)) is not None:
            assert path.split(".")[1].partition("[")[0] in fields
            assert diaries.count() == 0
            return
        expected = exact({name: getattr(made, name) for name in fields})
        found = diaries.get(1)
        assert exact({name: getattr(found, name) for name in fields}) == expected
        dump = io.StringIO()
        db.kv.dump(dump)
        dump.seek(0)
        copy.kv.load(dump)
        assert copy.kv.get(("changed_diaries", 1)).value == db.kv.get(("changed_diaries", 1)).value


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"hour": time(1, 2, tzinfo=BERLIN)}, "$.hour", "depends on the day"),
    ({"hour": time(2, 30, fold=1)}, "$.hour", "fold=1"),
    ({"hour": time(1, 2, tzinfo=HALF_SECOND)}, "$.hour", "fraction of a second"),
    ({"hours": {"monday": Opening(at=time(1, tzinfo=BERLIN))}}, "$.hours.monday.at", "depends on the day"),
    ({"several": [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=HALF_SECOND)]}, "$.several[1]", "frac"),
    ({"at": datetime(2026, 1, 1, tzinfo=NoOffset())}, "$.at", "no offset"),
]


@pytest.mark.parametrize(("fields", "path", "message"), REFUSED)
def test_what_would_come_back_changed_is_refused_and_the_path_named(fields: dict[str, Any], path: str, message: str):
    with Database("memory://", models=[Diary]) as db:
        with pytest.raises(InvalidValueError, match=message) as caught:
            db[Diary].create(id=1, **fields)
        assert (caught.value.path, caught.value.model) == (path, "Diary")
        assert caught.value.hint
        assert db[Diary].count() == 0


def test_one_instant_in_two_time_zones_is_no_two_members_of_a_set_or_keys_of_a_dict():
    """In a repeated hour Python takes them for different, and the document kept one of them only."""
    first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
    again = first.replace(tzinfo=timezone(timedelta(hours=2)))
    with Database("memory://", models=[Diary]) as db:
        for fields in ({"days": {first, again}}, {"seen": {first: 1, again: 2}}):
            with pytest.raises(InvalidValueError, match="one stored form") as caught:
                db[Diary].create(id=1, **fields)
            assert caught.value.field in fields
        db[Diary].create(id=1, days={first}, seen={first.replace(fold=1): 2})
        assert db[Diary].get(1).days == {again}


def test_a_naive_datetime_of_a_repeated_hour_keeps_its_fold_and_v8_which_cannot_refuses_it():
    at = datetime(2026, 10, 25, 2, 30, fold=1)
    with Database("memory://", models=[Diary]) as db:
        db[Diary].create(id=1, at=at, local=at, several=[at])
        found: Any = db[Diary].get(1)
        assert [found.at.fold, found.local.fold, found.several[0].fold] == [1, 1, 1]
        assert db.kv.get(("changed_diaries", 1)).value["at"].fold == 1
        db[Diary].patch(1, at=at.replace(fold=0))
        assert db.kv.get(("changed_diaries", 1)).value["at"] == "2026-10-25T02:30:00"
    with Database("memory://", models=[Diary], codec="v8") as db, pytest.raises(InvalidValueError) as caught:
        db[Diary].create(id=1, several=[at])
    assert caught.value.path == "$.several[0]"


def test_extra_fields_of_a_pydantic_dataclass_are_kept():
    with Database("memory://", models=[Diary]) as db:
        place = Place(name="Bern", canton="BE", tags=["a"])  # type: ignore[call-arg]
        assert place.shout == "BERN"
        made: Any = db[Diary].create(id=1, place=place)
        found: Any = db[Diary].get(1)
        assert found.place.__dict__ == {"name": "Bern", "canton": "BE", "tags": ["a"]}
        found.place.canton = "BL"
        db[Diary].save(found)
        db[Diary].refresh(made)
        assert made.place.canton == "BL"
        assert db.kv.get(("changed_diaries", 1)).value["place"] == {"name": "Bern", "canton": "BL", "tags": ["a"]}


@given(at=MOMENTS)
def test_a_dump_keeps_offsets_below_a_second(at: datetime):
    with open_kv() as kv, open_kv() as copy:
        for offset in (at.utcoffset(), timedelta(microseconds=5), timedelta(microseconds=-500_000)):
            zone = None if offset is None else timezone(offset)
            value = at.replace(tzinfo=zone)
            kv.set(("at",), value)
            stored = kv.get(("at",)).value
            assert exact(stored) == exact(value)
            assert exact(value_from_json(value_to_json(stored))) == exact(value)
        dump = io.StringIO()
        kv.dump(dump)
        dump.seek(0)
        copy.load(dump)
        assert exact(copy.get(("at",)).value) == exact(kv.get(("at",)).value)
