"""Arguments of queries that make no sense: each gets an error of the library that says what to give instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from kvmodels import (
    AsyncDatabase,
    Count,
    Database,
    Field,
    Index,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    MultiIndexed,
    PrimaryKey,
    Q,
    Unique,
    UniqueConstraint,
    col,
)
from kvmodels.api._sync.repository import Repository
from tests.robustness.models import refused, stored_rows


class Address(BaseModel):
    city: str


class Place(KvModel, collection="places"):
    id: PrimaryKey[int]
    code: Unique[str]
    country: Indexed[str]
    height: Indexed[int | None] = Field(default=None)
    nick: Annotated[str, Indexed(key=str.casefold)] = "x"
    names: MultiIndexed[list[str]] = Field(default_factory=list)
    years: MultiIndexed[frozenset[int]] = Field(default_factory=frozenset)
    address: Address | None = None
    labels: dict[str, str] = {}
    active: bool = True

    class Meta:
        indexes = (
            Index("address.city"),
            Index("country", "code", name="both"),
            Index("code", key=len, version=1, returns=int, name="length"),
            UniqueConstraint("nick", where=Q(active=True), name="active_nick"),
            UniqueConstraint("code", key=lambda code: code[:1], version=1, returns=str, name="initial"),
        )


Places = Repository[Place]


@pytest.fixture
def db():
    with Database("memory://", models=[Place]) as opened:
        opened[Place].insert(Place(id=1, code="a", country="CH", names=["x", "y"], years=frozenset({1})))
        yield opened


@pytest.mark.parametrize("values", ["CH", b"CH", {"CH": 1}, 3, None, int, Place.country], ids=repr)
def test_a_list_of_values_is_neither_a_text_nor_one_value(db: Database, values: Any):
    places = db[Place]
    spelt: list[tuple[str, str, Callable[[], Any]]] = [
        ("country", "country__in=[...]", lambda: places.filter(Place.country.in_(values))),
        ("country", "country__in=[...]", lambda: places.filter(country__in=values)),
        ("country", "country__not_in=[...]", lambda: places.exclude(Place.country.not_in(values))),
        ("names", "names__contains_any=[...]", lambda: places.filter(Place.names.contains_any(values))),
        ("names", "names__contains_all=[...]", lambda: places.filter(names__contains_all=values)),
        ("names", "names__any__in=[...]", lambda: places.filter(Place.names.any().in_(values))),
        ("labels", "labels__in=[...]", lambda: places.filter(labels__in=values)),
        ("id", "id__in=[...]", lambda: places.filter(pk__in=values)),
    ]
    for field, hint, call in spelt:
        error = refused(call, InvalidValueError, model="Place", field=field)
        assert hint in str(error) or error.message == "a field is compared with a value"


@pytest.mark.parametrize(
    "call",
    [
        lambda places, other: places.filter(height__gt=other),
        lambda places, other: places.filter(height=other),
        lambda places, other: places.filter(height__in=[1, other]),
        lambda places, other: places.filter(height__range=(1, other)),
        lambda places, other: places.filter(height__range=(1, 2, other)),
        lambda places, other: places.filter(names=other),
        lambda places, other: places.filter(names=["x", other]),
        lambda places, other: places.filter(names__contains=other),
        lambda places, other: places.filter(labels=other),
        lambda places, other: places.filter(labels__in=[other]),
        lambda places, other: places.filter(pk=other),
        lambda places, other: places.filter(Q(address=other)),
        lambda places, other: places.get_or_none(code=other),
    ],
)
@pytest.mark.parametrize(
    "other",
    [Place.height, Place.names, Place.names.any(), Place.height > 3, Q(height=3), Place.height.desc()],
    ids=["field", "several", "element", "comparison", "Q", "order"],
)
def test_a_field_is_compared_with_a_value_and_not_with_a_field(db: Database, call, other):
    error = refused(lambda: call(db[Place], other), InvalidValueError, model="Place")
    assert error.message == "a field is compared with a value"
    assert "computed column" in (error.hint or "")


@pytest.mark.parametrize("bounds", ["<>", "", "[", None, [], ["[]"], {}, 3, Place.height], ids=repr)
def test_the_bounds_of_a_range_are_one_of_four(db: Database, bounds: Any):
    error = refused(lambda: Place.height.between(1, 2, bounds=bounds), InvalidArgumentError, argument="bounds")
    assert error.data["expected"] == ("[]", "[)", "(]", "()")
    refused(lambda: db[Place].filter(height__range=(1, 2, bounds)), InvalidValueError, field="height")


@pytest.mark.parametrize(
    "whole", ["x", b"x", 3, ("x", "y"), {"x", "y"}, {"x": 1}, object()], ids=lambda whole: type(whole).__name__
)
def test_a_whole_field_of_several_values_is_never_equal_to_one_value_or_another_container(db: Database, whole: Any):
    places = db[Place].all().allow_scan()
    for call in (
        lambda: places.filter(names=whole),
        lambda: places.filter(Place.names == whole),
        lambda: places.filter(names__ne=whole),
        lambda: places.filter(names__in=[["x"], whole]),
    ):
        error = refused(call, InvalidValueError, model="Place", field="names", type=type(whole).__name__)
        assert "names__contains=" in (error.hint or "")
        assert "Give a list" in (error.hint or "")


def test_a_whole_field_of_several_values_is_equal_to_a_container_of_its_kind(db: Database):
    places = db[Place].all().allow_scan()
    assert places.filter(names=["x", "y"]).count() == places.filter(years={1}).count() == 1
    assert places.filter(names__in=[["x"], None, ["x", "y"]]).count() == 1
    refused(lambda: places.filter(years=[1]), InvalidValueError, field="years", type="list")


@pytest.mark.parametrize("index", [None, True, 3, b"code", ["code"], Place.code, int], ids=repr)
def test_an_index_is_named_by_a_text(db: Database, index: Any):
    error = refused(lambda: db[Place].using_index(index), InvalidValueError, model="Place", field="index")
    assert "pk, code, country" in (error.hint or "")


@pytest.mark.parametrize("flag", ["no", 1, None, Place.code == "a", []], ids=repr)
def test_what_is_either_so_or_not_is_a_bool(db: Database, flag: Any):
    places = db[Place]
    refused(lambda: places.values_list("code", flat=flag), InvalidArgumentError, argument="flat")
    refused(lambda: places.explain(analyze=flag), InvalidArgumentError, argument="analyze")
    refused(lambda: places.filter(height__isnull=flag), InvalidValueError, field="height")
    refused(lambda: places.filter(Place.names.is_null(flag)), InvalidValueError, field="names")
    with pytest.raises(ModelDefinitionError, match="descending is True or False"):
        Indexed(descending=flag)


@pytest.mark.parametrize("size", [True, None, 1.0, "3", float("nan"), [], Count()], ids=repr)
def test_a_size_that_is_no_int_is_refused_with_the_call_to_write(db: Database, size: Any):
    places = db[Place]
    for field, call in (
        ("batch_size", lambda: places.iterator(batch_size=size)),
        ("size", lambda: places.page(size=size)),
        ("limit", lambda: places.order_by("height").sort_in_memory(limit=size)),
    ):
        error = refused(call, InvalidValueError, field=field, type=type(size).__name__)
        assert f"{field}=" in (error.hint or "")


@pytest.mark.parametrize("size", [0, -1, -(10**30)])
def test_a_size_of_nothing_is_refused(db: Database, size: int):
    places = db[Place]
    refused(lambda: places.iterator(batch_size=size), InvalidArgumentError, argument="batch_size", value=size)
    refused(lambda: places.page(size=size), InvalidArgumentError, argument="size", value=size)
    refused(lambda: places.sort_in_memory(limit=size), InvalidArgumentError, argument="limit", value=size)


@pytest.mark.parametrize(
    "keys",
    ["abc", b"abc", bytearray(b"abc"), 3, None, Place(id=1, code="b", country="x")],
    ids=lambda one: repr(one)[:12],
)
def test_several_keys_are_no_text(db: Database, keys: Any):
    refused(lambda: db[Place].in_bulk(keys), InvalidArgumentError, argument="keys")
    refused(lambda: db[Place].bulk_create(keys), InvalidArgumentError, argument="objs")


@pytest.mark.parametrize("defaults", [0, False, "", "country", [], [("country", "x")], {1: 2}, Q()], ids=repr)
def test_defaults_are_given_by_name(db: Database, defaults: Any):
    before = stored_rows(db)
    refused(lambda: db[Place].get_or_create(code="z", defaults=defaults), InvalidArgumentError, argument="defaults")
    assert stored_rows(db) == before


@pytest.mark.parametrize("force", ["no", 0, None, Q(id=1)], ids=repr)
def test_an_overwrite_is_forced_by_true_only(db: Database, force: Any):
    before = stored_rows(db)
    for obj in (Place(id=1, code="b", country="x"), db[Place].get(1)):
        refused(lambda: db[Place].save(obj, force=force), InvalidArgumentError, argument="force")  # noqa: B023
    assert stored_rows(db) == before


@pytest.mark.parametrize("thing", [[], {}, Place(id=1, code="a", country="x"), "places", Address], ids=repr)
async def test_a_repository_is_one_of_a_model_class(db: Database, thing: Any):
    error = refused(lambda: db[thing], InvalidArgumentError, argument="model", expected=("Place",))
    with db.transaction() as tx:
        assert str(refused(lambda: tx[thing], InvalidArgumentError)) == str(error)
    async with AsyncDatabase("memory://", models=[Place]) as other:
        assert str(refused(lambda: other.repository(thing), InvalidArgumentError)) == str(error)
        async with other.transaction() as inside:
            assert str(refused(lambda: inside[thing], InvalidArgumentError)) == str(error)


def test_only_a_unique_index_that_holds_the_new_record_decides_a_race(db: Database):
    places, rest = db[Place], {"id": 7, "code": "q", "country": "IT"}
    before = stored_rows(db)
    for lookups in ({"nick": "n"}, {"nick": "n", "active": False}, {"initial": "q"}):
        refused(lambda: places.get_or_create(defaults=rest, **lookups), InvalidArgumentError, argument="lookups")  # noqa: B023
    assert stored_rows(db) == before
    made, created = places.get_or_create(nick="N", active=True, defaults=rest)
    assert created
    assert places.get_or_create(nick="n", active=True, defaults=rest) == (made, False)


def test_a_field_of_a_nested_model_is_compared_with_a_value_too(db: Database):
    refused(
        lambda: db[Place].filter(col(Place.address.city) == Place.code),  # type: ignore[union-attr]
        InvalidValueError,
        field="address.city",
    )


@pytest.mark.parametrize("lookups", ["labels", "names", "labels__ne", "labels__in"])
def test_a_value_that_contains_itself_is_refused_before_anything_is_read(db: Database, lookups: str):
    cycle: list[Any] = []
    cycle.append(cycle)
    value: Any = {"names": cycle, "labels__in": [{"x": cycle}]}.get(lookups, {"x": cycle})
    refused(lambda: db[Place].filter(**{lookups: value}), InvalidValueError, field=lookups.partition("__")[0])
