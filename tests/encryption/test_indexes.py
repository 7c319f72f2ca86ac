"""Blind indexes: equal values are found, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest

from kvmodels import (
    Count,
    Database,
    Encrypted,
    F,
    Field,
    KvModel,
    Max,
    PrimaryKey,
    Q,
    Unique,
    UniqueConstraint,
    UniqueViolationError,
    UnknownLookupError,
)
from tests.encryption.models import RING, Patient, patient


@pytest.fixture
def db() -> Any:
    with Database("memory://", models=[Patient], keys=RING) as database:
        yield database
        assert database.check().ok


@pytest.fixture
def patients(db: Database) -> Any:
    found = db[Patient]
    found.bulk_create(
        [
            patient(1, city="Rome", tags=["a", "b"], bed=3),
            patient(2, city="Oslo", tags=["b"], bed=1),
            patient(3, city=None, bed=2),
            patient(4, city="Rome", bed=2),
        ]
    )
    return found


def ids(query: Any) -> list[int]:
    return sorted(found.id for found in query)


def test_equal_values_are_found(patients: Any):
    assert patients.get(insurance="i-2").id == 2, "folded as the marker says"
    assert ids(patients.filter(city="Rome")) == [1, 4]
    assert ids(patients.filter(city=None)) == [3]
    assert ids(patients.filter(city__in=["Oslo", None, "Paris"])) == [2, 3]
    assert ids(patients.filter(tags__contains="b")) == [1, 2]
    assert ids(patients.filter(tags__contains_any=["a", "z"])) == [1]
    assert ids(patients.filter(Q(city="Oslo") | Q(insurance="I-4"))) == [2, 4]
    assert ids(patients.filter(~Q(city="Rome")).allow_scan()) == [2, 3]
    assert ids(patients.filter(city__isnull=False).allow_scan()) == [1, 2, 4]


def test_other_columns_of_an_index_have_ranges_and_an_order(patients: Any):
    query = patients.filter(ward="a", city="Rome").order_by("-bed")
    assert [found.id for found in query] == [1, 4]
    assert ids(patients.filter(ward="a", city="Rome", bed__gte=3)) == [1]
    page = query.page(size=1)
    assert [found.id for found in query.page(size=1, after=page.next_cursor).items] == [4]


def test_a_second_record_with_a_unique_value_is_refused_without_the_value(patients: Any):
    with pytest.raises(UniqueViolationError) as caught:
        patients.insert(patient(9, insurance="i-1"))
    assert caught.value.values == ("(encrypted)",)
    assert caught.value.existing_key == 1
    result = patients.bulk_create([patient(9, insurance="i-1")], on_conflict="ignore")
    assert "i-1" not in str(result).casefold()
    patients.patch(1, insurance="free")
    patients.insert(patient(9, insurance="i-1"))


@pytest.mark.parametrize(
    "query",
    [
        lambda patients: patients.filter(city__gt="A"),
        lambda patients: patients.filter(city__range=("A", "B")),
        lambda patients: patients.filter(city__startswith="R"),
        lambda patients: patients.filter(city__icontains="r"),
        lambda patients: patients.filter(tags=["a"]),
        lambda patients: patients.filter(name="Planted 1"),
        lambda patients: patients.filter(name__in=["Planted 1"]),
        lambda patients: patients.filter(Patient.city < "Z"),
        lambda patients: patients.filter(city=F("ward")),
        lambda patients: patients.filter(ward=F("city")),
        lambda patients: patients.order_by("city"),
        lambda patients: patients.order_by("-name"),
        lambda patients: patients.group_by("city").aggregate(n=Count()).to_list(),
        lambda patients: patients.aggregate(Max("city")),
        lambda patients: patients.values_list("city").distinct().sort_in_memory(9).to_list(),
    ],
)
def test_what_needs_more_than_equality_is_refused(patients: Any, query: Any):
    with pytest.raises(UnknownLookupError) as caught:
        query(patients)
    assert caught.value.hint is not None
    assert "blind index" in caught.value.hint


def test_a_filter_by_a_field_without_a_blind_index_names_the_missing_declaration(patients: Any):
    with pytest.raises(UnknownLookupError) as caught:
        patients.filter(name="Ada")
    assert caught.value.hint is not None
    assert "declare Indexed(), Unique() or MultiIndexed() for a blind index" in caught.value.hint


RIVALS: list[Callable[[], Any]] = []
"""Writes that are made while an object is created, which is after its lookup and before its insert."""


def overtaken() -> int:
    while RIVALS:
        RIVALS.pop()()
    return 0


class Badge(KvModel, collection="badges"):
    id: PrimaryKey[int]
    code: Annotated[Encrypted[str], Unique(key=str.casefold)]
    site: str = "here"
    desk: Encrypted[str | None] = Field(default=None)
    seen: int = Field(default_factory=overtaken)

    class Meta:
        indexes = (UniqueConstraint("site", "desk", name="place"),)


def test_a_caller_that_loses_the_race_for_a_unique_value_gets_the_record():
    with Database("memory://", models=[Badge], keys=RING) as db:
        badges = db[Badge]
        RIVALS.append(lambda: badges.insert(Badge(id=1, code="planted", desk="A1", seen=0)))
        assert badges.get_or_create(code="Planted", defaults={"id": 2})[0].pk == 1
        RIVALS.append(lambda: badges.insert(Badge(id=3, code="other", desk="A2", seen=0)))
        found, created = badges.update_or_create(
            site="here", desk="A2", defaults={"code": "new"}, create_defaults={"id": 4, "code": "new"}
        )
        assert (found.id, found.code, created) == (3, "new", False)
        RIVALS.append(lambda: badges.insert(Badge(id=5, code="third", desk="A3", seen=0)))
        with pytest.raises(UniqueViolationError):
            badges.get_or_create(code="third", desk="A4", defaults={"id": 6})
        assert (badges.count(), db.check().ok) == (3, True)


def test_a_plan_shows_no_blind_values(db: Any):
    query = db[Patient].filter(insurance="I-1", city__in=["Rome", None]).exclude(tags__contains="planted")
    plan = str(query.explain())
    assert "insurance = (encrypted)" in plan
    assert "(encrypted) in tags" in plan
    assert "b'" not in plan
