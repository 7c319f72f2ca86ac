"""Values of fields instead of objects: equal to the attributes of the objects, whole or from an index alone."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import PurePosixPath
from typing import Annotated, Any, NamedTuple, TypedDict

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, SecretStr, StringConstraints, field_validator, model_validator

from kvmodels import (
    AsyncDatabase,
    Database,
    DecodeError,
    Field,
    Index,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    PrimaryKey,
    Stored,
    UnknownFieldError,
)
from kvmodels.flows.hydration.projection import projector
from kvmodels.schema.compile.schema import schema_of
from tests.query.engines import watched
from tests.query.models import Mixed, Person, people
from tests.query.test_column_types import TYPES, model_of
from tests.unit.schema.test_storage_properties import FIELDS, Everything


class Shade(Enum):
    DARK = "d"
    LIGHT = "l"


class Street(BaseModel):
    name: str
    number: int = 1


class Address(BaseModel):
    city: str
    zip: str | None = None
    street: Street | None = None


def initial(name: str) -> str:
    return name[:1].upper()


def words(name: str) -> list[str]:
    return name.split()


class Place(KvModel, collection="places"):
    """Nested, folded and computed columns, and an index that holds most of what is asked for."""

    id: PrimaryKey[int]
    name: Annotated[str, Indexed(key=str.casefold)]
    country: Indexed[str]
    population: int = 0
    address: Address | None = None
    homes: list[Address] = Field(default_factory=list)
    shade: Shade = Shade.DARK
    secret: SecretStr = SecretStr("x")
    path: PurePosixPath = PurePosixPath("/")
    trimmed: Annotated[str, StringConstraints(strip_whitespace=True)] = ""
    moment: datetime | None = None

    class Meta:
        indexes = (
            Index("country", "-population", include=("shade", "moment"), name="big"),
            Index("address.city", "country", name="by_city"),
            Index("name", key=initial, version=1, name="initial"),
            Index("name", key=words, version=1, name="words"),
        )


def places() -> list[Place]:
    street = Street(name="Main")
    moments = [None, datetime(2024, 5, 6, 7, tzinfo=UTC)]
    return [
        Place(
            id=number,
            name=f"{'Ab' if number % 2 else 'aB'} {number % 3}",
            country=("CH", "IT", "FR")[number % 3],
            population=number * 10 % 70,
            address=None if number % 4 == 0 else Address(city=f"c{number % 3}", street=street if number % 2 else None),
            homes=[Address(city=f"h{each}") for each in range(number % 3)],
            shade=Shade.LIGHT if number % 2 else Shade.DARK,
            secret=SecretStr(str(number)),
            path=PurePosixPath(f"/{number}"),
            moment=moments[number % 2],
        )
        for number in range(20)
    ]


@pytest.fixture(scope="module")
def db() -> Database:
    db = Database("memory://", models=[Place, Person, Mixed])
    db[Place].bulk_create(places())
    db[Person].bulk_create([Person(**fields) for fields in people(30)])
    return db


# --- values are attributes ----------------------------------------------------------------------------------------


def sets_apart(value: Any) -> str:
    """Texts tell 1 from True and 0.0 from -0.0; the order of a set depends on the process."""
    return repr(sorted(value)) if isinstance(value, set) else repr(value)


@given(st.fixed_dictionaries(FIELDS))
def test_values_of_generated_objects_are_their_attributes_from_a_whole_document_and_from_a_part(values):
    schema = schema_of(Everything)
    instance = Everything(**values)
    document = schema.prepare(instance).document
    whole = projector(schema, tuple(schema.fields))(deepcopy(document))
    assert list(whole) == list(schema.fields)
    for name in schema.fields:
        part = projector(schema, (name,))({name: deepcopy(document[name])})
        expected = getattr(instance, name)
        assert whole[name] == part[name] == expected
        assert sets_apart(whole[name]) == sets_apart(part[name]) == sets_apart(expected)


@pytest.mark.parametrize("name", TYPES)
def test_values_of_every_column_type_are_the_attributes_from_records_and_from_entries(name: str):
    type_, values = TYPES[name]
    model = model_of(type_)
    db, engine = watched([model])
    db[model].bulk_create(
        [model(id=n, up=value, down=value, free=value, group=1) for n, value in enumerate([*values, None])]
    )
    objects = {thing.id: thing for thing in db[model]}
    for row in db[model].values("id", "up", "down", "free"):
        thing = objects[row["id"]]
        assert (row["up"], row["down"], row["free"]) == (thing.up, thing.down, thing.free)
        assert repr(row["free"]) == repr(thing.free)
    engine.meter.reset()
    pairs = db[model].filter(group=1).order_by("up").values_list("id", "up").to_list()
    assert [(key, repr(value)) for key, value in pairs] == [(key, repr(objects[key].up)) for key, _ in pairs]
    lossy = name in ("float", "datetime", "decimal", "time", "enum", "int_enum", "literal", "ip4", "ip6", "ip")
    assert lossy or engine.meter.followed == 0


def test_every_field_of_objects_with_nested_and_special_types(db: Database):
    names = list(Place.model_fields)
    for row, place in zip(db[Place].values(), db[Place], strict=True):
        assert list(row) == names
        assert row == {name: getattr(place, name) for name in names}


def test_paths_give_the_attributes_of_nested_objects(db: Database):
    rows = db[Place].values("id", "address.city", "address__zip", "address.street", "address.street.name", "homes.city")
    for row in rows:
        place = db[Place].get(row["id"])
        address = place.address
        assert row["address.city"] == (address and address.city)
        assert row["address__zip"] == (address and address.zip)
        assert row["address.street"] == (address and address.street)
        assert row["address.street.name"] == (address and address.street and address.street.name)
        assert row["homes.city"] == [home.city for home in place.homes]


def test_computed_columns_give_what_their_function_gave_and_folded_fields_what_was_stored(db: Database):
    for row in db[Place].values("name", "initial", "words", "pk"):
        assert row["initial"] == initial(row["name"])
        assert sorted(row["words"]) == sorted(set(words(row["name"])))
        assert row["name"][:2] in ("Ab", "aB")
        assert row["pk"] in range(20)


def test_pk_is_a_tuple_when_the_key_is_composite():
    db = Database("memory://", models=[Mixed])
    db[Mixed].create(left=1, right="r", c=3)
    assert db[Mixed].values("pk", "c").to_list() == [{"pk": (1, "r"), "c": 3}]
    assert db[Mixed].values_list("pk", flat=True).to_list() == [(1, "r")]


def test_fields_may_be_taken_from_the_class(db: Database):
    assert db[Person].values(Person.color).first() == {"color": "red"}
    assert db[Person].values_list(Person.id, Person.color)[1] == (1, "green")


# --- documents of other releases ----------------------------------------------------------------------------------


class Newer(KvModel, collection="aged"):
    id: PrimaryKey[int]
    plain: int = 7
    items: list[int] = Field(default_factory=list)
    drawn: int = Field(default_factory=lambda: 5)
    needed: str
    nested: Address | None = None


def test_what_a_document_lacks_is_what_a_read_of_the_object_gives():
    schema = schema_of(Newer)
    assert projector(schema, ("id", "plain", "items"))({"id": 1}) == {"id": 1, "plain": 7, "items": []}
    for name in ("drawn", "needed"):
        with pytest.raises(DecodeError) as refused:
            projector(schema, (name,))({"id": 1})
        assert (refused.value.field, refused.value.key, refused.value.reason) == (name, (1,), "missing")


def test_defaults_are_not_shared_between_results():
    schema = schema_of(Newer)
    projector(schema, ("items",))({"id": 1})["items"].append(3)
    assert projector(schema, ("items",))({"id": 1}) == {"items": []}


@pytest.mark.parametrize(
    ("document", "field", "reason"),
    [
        ({"id": 1, "plain": "many"}, "plain", "int_parsing"),
        ({"id": 1, "nested": 5}, "nested", "TypeError"),
        ({"id": 1, "nested": {"zip": "x"}}, "nested.city", None),
    ],
)
def test_what_cannot_be_read_is_a_decode_error_that_names_record_and_field(document, field: str, reason: str | None):
    with pytest.raises(DecodeError) as refused:
        projector(schema_of(Newer), (field,))(document)
    assert refused.value.field == field.partition(".")[0]
    assert refused.value.key == (1,)
    assert reason is None or refused.value.reason == reason


class Checked(KvModel, collection="checked"):
    """Functions that see the whole object, and settings that change values."""

    model_config = ConfigDict(str_to_lower=True, use_enum_values=True)

    id: PrimaryKey[int]
    name: str
    shade: Shade = Shade.DARK
    doubled: int = 0

    @field_validator("name")
    @classmethod
    def short(cls, name: str) -> str:
        return name[:5]

    @model_validator(mode="after")
    def double(self) -> Checked:
        self.__dict__["doubled"] = self.id * 2
        return self


def test_functions_and_settings_of_the_class_have_their_say():
    schema = schema_of(Checked)
    document = {"id": 4, "name": "WRITTEN BEFORE", "shade": "l", "doubled": 0}
    whole = schema.decode(dict(document), (4,))[0]
    assert projector(schema, ("name", "shade", "doubled"))(dict(document)) == {
        "name": whole.name,
        "shade": whole.shade,
        "doubled": whole.doubled,
    }
    assert (whole.name, whole.shade, whole.doubled) == ("writt", "l", 8)


class Kelvin:
    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


class Probe(KvModel, collection="probes", arbitrary_types_allowed=True):
    id: PrimaryKey[int]
    heat: Annotated[Kelvin, Stored(lambda kelvin: kelvin.degrees, Kelvin)]
    day: date | None = None


def test_stored_forms_of_the_user_are_decoded():
    db = Database("memory://", models=[Probe])
    db[Probe].create(id=1, heat=Kelvin(3.5), day=date(2024, 1, 1))
    heat, day = db[Probe].values_list("heat", "day")[0]
    assert (type(heat), heat.degrees, day) == (Kelvin, 3.5, date(2024, 1, 1))


# --- shapes -------------------------------------------------------------------------------------------------------


def test_values_are_query_sets_like_any_other(db: Database):
    names = db[Person].filter(color="red").values_list("id", flat=True)
    assert names.order_by("-age")[:3].to_list() == [p.id for p in db[Person].filter(color="red").order_by("-age")[:3]]
    assert list(names) == names.to_list() == list(names.iterator(batch_size=3))
    assert (names.first(), names.last(), names.count(), names.exists(), names[2]) == (0, 27, 10, True, 6)
    assert names.reverse().to_list() == names.to_list()[::-1]
    assert names.filter(id__gt=20).to_list() == [21, 24, 27]
    assert names.exclude(id__gt=5).to_list() == [0, 3]
    assert names.values("id", "color").first() == {"id": 0, "color": "red"}
    page = names.page(size=4)
    assert (page.items, page.has_more) == ([0, 3, 6, 9], True)
    following = names.page(size=4, after=page.next_cursor)
    assert following.items == [12, 15, 18, 21]
    assert names.page(size=4, before=following.previous_cursor).items == [0, 3, 6, 9]
    assert repr(names) == "<QuerySet[Person] filtered by color>"
    with pytest.raises(Person.DoesNotExist):
        names[10]


def test_objects_are_not_touched_by_a_query_set_of_values(db: Database):
    reds = db[Person].filter(color="red")
    reds.values("id")
    assert isinstance(reds.first(), Person)


def test_one_field_may_be_named_twice_in_a_tuple(db: Database):
    assert db[Person].values_list("id", "color", "id")[2] == (2, "blue", 2)


class Short(BaseModel):
    id: int
    color: str
    age: float | None = None


@dataclass
class Plain:
    id: int
    color: str


class Named(NamedTuple):
    id: int
    color: str


class Typed(TypedDict):
    id: int
    color: str


@pytest.mark.parametrize("projection", [Short, Plain, Named, Typed])
def test_only_gives_objects_of_a_class_with_fewer_fields(db: Database, projection: Any):
    found = db[Person].filter(color="blue").only(projection).to_list()
    assert len(found) == 10
    for made in found:
        asked = made.__getitem__ if projection is Typed else made.__getattribute__
        person = db[Person].get(asked("id"))
        assert (asked("id"), asked("color")) == (person.id, person.color)
        assert isinstance(made, dict if projection is Typed else projection)
        assert not hasattr(made, "versionstamp")


class City(BaseModel):
    city: str


class Card(BaseModel):
    name: str
    address: City | None
    homes: list[City]
    address__zip: str | None
    initial: str


def test_only_narrows_nested_objects_and_takes_paths_and_computed_columns(db: Database):
    for card, place in zip(db[Place].only(Card), db[Place], strict=True):
        assert (card.name, card.initial) == (place.name, initial(place.name))
        assert (card.address and card.address.city) == (place.address and place.address.city)
        assert [home.city for home in card.homes] == [home.city for home in place.homes]


class Wrong(BaseModel):
    color: int


class Empty(BaseModel):
    pass


class Misspelt(BaseModel):
    id: int
    colour: str


def test_only_refuses_what_is_no_projection(db: Database):
    for wrong in (int, "Short", Short(id=1, color="red"), tuple):
        with pytest.raises(InvalidValueError):
            db[Person].only(wrong)  # type: ignore[arg-type]
    for empty in (Empty, Person):
        with pytest.raises(InvalidArgumentError):
            db[Person].only(empty)
    with pytest.raises(UnknownFieldError) as refused:
        db[Person].only(Misspelt)
    assert (refused.value.field, refused.value.suggestion) == ("colour", "color")
    with pytest.raises(pydantic.ValidationError):
        db[Person].only(Wrong).to_list()


@pytest.mark.parametrize(
    ("names", "field", "suggestion"),
    [
        (("colour",), "colour", "color"),
        (("id", "scores"), "scores", "score"),
        (("color__lower",), "color__lower", "color"),
        (("",), "", None),
        (("-age",), "-age", "age"),
        (("tags.x",), "tags.x", None),
    ],
)
def test_unknown_fields_are_refused_with_a_suggestion_before_anything_is_read(
    db: Database, names: tuple[str, ...], field: str, suggestion: str | None
):
    for method in (db[Person].values, db[Person].values_list):
        with pytest.raises(UnknownFieldError) as refused:
            method(*names)
        assert (refused.value.model, refused.value.field) == ("Person", field)
        assert suggestion is None or refused.value.suggestion == suggestion


def test_fields_of_nested_models_are_suggested(db: Database):
    with pytest.raises(UnknownFieldError) as refused:
        db[Place].values("address.citty")
    assert refused.value.suggestion == "address.city"


def test_what_names_no_field_is_refused(db: Database):
    for wrong in (5, None, ["id"], Person.age.desc()):
        with pytest.raises(InvalidValueError):
            db[Person].values(wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownFieldError):
        db[Person].values(Place.country)
    for fields in ((), ("id", "color")):
        with pytest.raises(InvalidArgumentError) as refused:
            db[Person].values_list(*fields, flat=True)
        assert refused.value.argument == "flat"


def test_the_size_of_a_batch_is_checked_at_once(db: Database):
    for size in (0, -1, 501):
        with pytest.raises(InvalidArgumentError):
            db[Person].all().iterator(batch_size=size)
    for wrong in (2.0, True, "9", None):
        with pytest.raises(InvalidValueError):
            db[Person].all().iterator(batch_size=wrong)  # type: ignore[arg-type]


# --- what is read -------------------------------------------------------------------------------------------------


def test_values_that_an_index_holds_are_read_without_records():
    db, engine = watched([Place])
    db[Place].bulk_create(places())
    asked = [
        (db[Place].filter(country="CH").values("id", "country", "population", "shade", "moment"), 7),
        (db[Place].filter(address__city="c1").values("address.city", "country", "pk"), 5),
        (db[Place].filter(address__city="c1").values_list("address__city", flat=True), 5),
    ]
    for query, number in asked:
        engine.meter.reset()
        found = query.to_list()
        assert (len(found), engine.meter.rows, engine.meter.followed) == (number, number, 0)
        whole = query.using_index("pk").allow_scan()
        assert sorted(map(repr, whole)) == sorted(map(repr, found))


def test_iterator_reads_batches_of_one_size():
    db, engine = watched([Person])
    db[Person].bulk_create([Person(**fields) for fields in people(100)])
    engine.meter.reset()
    assert len(list(db[Person].all().iterator(batch_size=10))) == 100
    assert engine.meter.reads in (10, 11)


# --- the asynchronous twin ----------------------------------------------------------------------------------------


async def test_the_asynchronous_twin_gives_the_same_values(db: Database):
    async with AsyncDatabase("memory://", models=[Person]) as other:
        await other[Person].bulk_create([Person(**fields) for fields in people(30)])
        ours, theirs = db[Person].filter(color="red"), other[Person].filter(color="red")
        assert await theirs.values("id").to_list() == ours.values("id").to_list()
        assert await theirs.values_list("id", "age")[1] == ours.values_list("id", "age")[1]
        flat = theirs.values_list("id", flat=True)
        assert (
            [row async for row in flat] == [row async for row in flat.iterator(batch_size=2)] == list(range(0, 30, 3))
        )
        assert await theirs.only(Plain).first() == Plain(0, "red")
        assert await flat.page(size=2) == ours.values_list("id", flat=True).page(size=2)
        assert await theirs.values("color").distinct().count() == 1
        assert (await theirs.explain(analyze=True)).analysis == ours.explain(analyze=True).analysis
        with pytest.raises(InvalidValueError):
            iter(flat)
