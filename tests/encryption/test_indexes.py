"""Blind indexes: equal values are found, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels import Count, Database, F, Max, Q, UniqueViolationError, UnknownLookupError
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
