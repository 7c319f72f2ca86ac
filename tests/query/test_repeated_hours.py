"""Operands and keys that Python takes for equal, or for different, while their packed parts say otherwise.

When the clocks go back an hour is repeated. In its own time zone Python takes its two instants for equal (``fold`` 0
and 1), and either of them for unequal to the same instant in another time zone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kvmodels import Database, Index, Indexed, KvModel, MultiIndexed, PrimaryKey, PrimaryKeyChangedError, Q

BERLIN = ZoneInfo("Europe/Berlin")
FIRST = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
SECOND = FIRST.replace(fold=1)


class Shift(KvModel, collection="repeated_shifts"):
    id: PrimaryKey[int]
    start: Indexed[datetime]
    stop: datetime
    stops: MultiIndexed[list[datetime]]
    plain: list[datetime]
    note: Any = None


class Tick(KvModel, collection="repeated_ticks"):
    at: PrimaryKey[datetime]
    count: int = 0


class Visit(KvModel, collection="repeated_visits"):
    at: PrimaryKey[datetime]
    room: PrimaryKey[int]
    guests: int = 0


def shift(number: int, at: datetime) -> Shift:
    return Shift(id=number, start=at, stop=at, stops=[at], plain=[at], note={"seen": at})


@pytest.fixture
def shifts() -> Any:
    db = Database("memory://", models=[Shift])
    db[Shift].bulk_create([shift(1, FIRST), shift(2, SECOND), shift(3, datetime(2027, 1, 1, tzinfo=UTC))])
    return db[Shift]


@pytest.mark.parametrize("field", ["start", "stop"])
def test_a_filter_keeps_two_instants_of_a_repeated_hour_apart(shifts: Any, field: str):
    def found(*expressions: Any, **lookups: Any) -> list[int]:
        return [one.id for one in shifts.filter(*expressions, **lookups).order_by("id").allow_scan()]

    either = Q(**{field: FIRST}) | Q(**{field: SECOND})
    assert found(**{f"{field}__in": [FIRST, SECOND]}) == found(either) == [1, 2]
    assert found(Q(**{field: FIRST}) & Q(**{field: SECOND})) == []
    assert found(Q(**{field: FIRST}), Q(**{f"{field}__in": [SECOND]})) == []
    assert found(**{f"{field}__not_in": [FIRST, SECOND]}) == found(~either) == [3]
    assert found(**{field: FIRST.astimezone(UTC)}) == found(**{f"{field}__in": [FIRST, FIRST.astimezone(UTC)]}) == [1]


def test_a_bulk_delete_by_a_list_of_instants_removes_both_of_a_repeated_hour(shifts: Any):
    assert shifts.filter(start__in=[FIRST, SECOND]).delete().written == 2
    assert [one.id for one in shifts.all()] == [3]


def test_elements_and_whole_fields_are_compared_by_their_instants(shifts: Any):
    def found(**lookups: Any) -> list[int]:
        return [one.id for one in shifts.filter(**lookups).order_by("id").allow_scan()]

    assert found(stops__contains_any=[FIRST, SECOND]) == [1, 2]
    assert found(stops__contains_all=[FIRST, SECOND]) == []
    for field in ("stops", "plain"):
        assert found(**{field: [FIRST]}) == [1]
        assert found(**{f"{field}__in": [[FIRST], [SECOND]]}) == [1, 2]
        assert found(**{f"{field}__ne": [SECOND]}) == [1, 3]
    assert found(note={"seen": SECOND}) == [2]


@pytest.mark.parametrize("expire_in", [None, 60])
def test_an_object_whose_primary_key_lies_in_a_repeated_hour_can_be_saved(expire_in: int | None):
    """With and without a lifetime: the one goes the ordinary path of a save, the other the fast one."""
    with Database("memory://", models=[Tick, Visit]) as db:
        ticks = db[Tick]
        made = [ticks.create(at=at, expire_in=expire_in) for at in (FIRST, SECOND)]
        for number, tick in enumerate(made, 1):
            tick.count = number
            ticks.save(tick)
        loaded = ticks.get(FIRST)
        loaded.at, loaded.count = FIRST, 3
        ticks.save(loaded)
        assert [tick.count for tick in ticks.all()] == [3, 2]
        loaded.at = SECOND
        with pytest.raises(PrimaryKeyChangedError):
            ticks.save(loaded)
        made[1].at = FIRST
        with pytest.raises(PrimaryKeyChangedError):
            ticks.save(made[1])
        made[1].at = SECOND
        assert ticks.bulk_update([ticks.get(FIRST), made[1]]).written == 2
        assert [tick.count for tick in ticks.in_bulk([FIRST, SECOND]).values()] == [3, 2]
        assert db.check().ok


def test_composite_keys_of_a_repeated_hour_are_looked_up_and_updated_each():
    with Database("memory://", models=[Visit]) as db:
        visits = db[Visit]
        made = [visits.create(at=at, room=1, guests=guests) for guests, at in enumerate((FIRST, SECOND))]
        assert visits.filter(pk__in=[(FIRST, 1), (SECOND, 1)]).count() == 2
        assert [one.guests for one in visits.filter(Q(pk__in=[(FIRST, 1)]) | Q(pk__in=[(SECOND, 1)]))] == [0, 1]
        assert visits.filter(pk=(FIRST, 1)).filter(pk=(SECOND, 1)).to_list() == []
        for one in made:
            one.guests += 5
        assert visits.bulk_update(made).written == 2
        assert [one.guests for one in visits.all()] == [5, 6]
        with db.transaction() as tx:
            for at in (FIRST, SECOND):
                found = tx[Visit].get((at, 1))
                found.at = at
                found.guests += 1
                tx[Visit].save(found)
        assert [one.guests for one in visits.all()] == [6, 7]


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Sample(KvModel, collection="repeated_samples"):
    id: PrimaryKey[int]
    price: Decimal
    weight: float
    color: Color
    on: bool

    class Meta:
        indexes = (Index("price"), Index("weight"), Index("color"), Index("on"))


@pytest.mark.parametrize("indexed", [True, False])
def test_operands_with_one_packed_part_count_once_and_others_are_kept_apart(indexed: bool):
    with Database("memory://", models=[Sample]) as db:
        samples = db[Sample]
        samples.create(id=1, price=Decimal("1.0"), weight=0.0, color=Color.RED, on=True)
        samples.create(id=2, price=Decimal(2), weight=1.0, color=Color.BLUE, on=False)

        def found(**lookups: Any) -> list[int]:
            query = samples.filter(**lookups) if indexed else samples.filter(**lookups).using_index("pk").allow_scan()
            return sorted(one.id for one in query)

        assert found(price__in=[1, Decimal("1.00"), Decimal("1.0")]) == [1]
        assert found(weight__in=[-0.0, 0.0, 0]) == found(weight=-0.0) == [1]
        assert found(weight__not_in=[1, 1.0]) == [1]
        assert found(color__in=[Color.RED, "red"]) == [1]
        assert found(color__in=["red", Color.BLUE]) == [1, 2]
        assert found(on__in=[True]) == [1]
        assert found(on__in=[True, False]) == [1, 2]
