"""An index of places is declared, written, built, checked, repaired and copied like every other index."""

from __future__ import annotations

import io
import math
import random
from struct import pack
from typing import Any, ClassVar, cast

import pytest
from pydantic import BaseModel

from kvmodels import (
    Circle,
    Database,
    GeoIndex,
    GeoPoint,
    Index,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    PrimaryKey,
    Q,
    describe,
)
from kvmodels.catalog.signatures import definition_of
from kvmodels.schema.compile.schema import schema_of

BERN, ROME = GeoPoint(lat=46.95, lon=7.44), GeoPoint(lat=41.9, lon=12.5)
PLACES = [None, BERN, ROME, GeoPoint(lat=46.9500001, lon=7.44), GeoPoint(lat=90, lon=180), GeoPoint(lat=-90, lon=-180)]


def shop_model(*declared: Any) -> Any:
    class Shop(KvModel, collection="shops"):
        id: PrimaryKey[int]
        location: GeoPoint | None = None
        kind: str | None = "bakery"
        closed: bool = False
        note: str = ""

        class Meta:
            indexes: ClassVar = declared

    return Shop


def with_places() -> Any:
    return shop_model(
        GeoIndex("location"),
        GeoIndex("location", group="kind", where=Q(closed=False), name="by_kind"),
    )


def entries(kv: Any, index: str) -> list[tuple[Any, ...]]:
    return [(*entry.key[1:], entry.value) for entry in kv.list(prefix=(f"shops_by_{index}",))]


def cell(place: GeoPoint) -> bytes:
    """The cell once more, bit by bit."""
    column, row = (
        min(math.floor(part * 2**26), 2**26 - 1) for part in ((place.lon + 180) / 360, (place.lat + 90) / 180)
    )
    number = sum(((column >> bit & 1) << 1 | row >> bit & 1) << 2 * bit for bit in range(26))
    return number.to_bytes(7, "big")


def expected(records: Any, index: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for one in records:
        if one.location is None or (index == "by_kind" and one.closed):
            continue
        group = () if index == "location" else (b"" if one.kind is None else one.kind,)
        found.append((*group, cell(one.location), one.id, pack(">dd", one.location.lat, one.location.lon)))
    return sorted(found, key=repr)


def require_exact(db: Database, model: Any) -> None:
    records = list(db[model].all())
    for index in ("location", "by_kind"):
        assert sorted(entries(db.kv, index), key=repr) == expected(records, index)
    assert db.check().ok


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_random_writes_leave_the_entries_of_the_stored_records(url: str, tmp_path: Any):
    model = with_places()
    chance = random.Random(20261129)
    with Database(url if "://" in url else tmp_path / "shops.db", models=[model]) as db:
        shops = db[model]
        for number in range(150):
            key = chance.randrange(12)
            values: dict[str, Any] = {
                "location": chance.choice(PLACES),
                "kind": chance.choice(["bakery", "smith", None]),
                "closed": chance.random() < 0.3,
                "note": str(number),
            }
            stored = shops.filter(id=key).exists()
            match chance.randrange(5):
                case 0 if not stored:
                    shops.create(id=key, **values)
                case 1 if stored:
                    shops.patch(key, **{name: values[name] for name in chance.sample(sorted(values), 2)})
                case 2 if stored:
                    shops.remove(key)
                case 3:
                    shops.bulk_create([model(id=key, **values)], on_conflict="update")
                case _:
                    with db.transaction() as tx:
                        tx[model].bulk_create([model(id=key, **values)], on_conflict="update")
        require_exact(db, model)


def test_a_move_within_a_cell_changes_the_value_alone():
    model = with_places()
    with Database("memory://", models=[model]) as db:
        for lat in (46.95, 46.9500001, 0.0, -0.0):
            db[model].update_or_create(id=1, defaults={"location": GeoPoint(lat=lat, lon=7.44)})
            require_exact(db, model)


def test_a_transaction_shows_its_own_entries_and_finds_them():
    model = with_places()
    with Database("memory://", models=[model]) as db:
        db[model].create(id=1, location=BERN)
        with db.transaction() as tx:
            tx[model].patch(1, location=ROME)
            tx[model].create(id=2, location=BERN)
            shown = entries(tx.kv, "location")
            assert [entry[1] for entry in shown] == [1, 2]
            assert [one.id for one in tx[model].filter(location__within=Circle(BERN, 10))] == [2]
            hits = tx[model].filter(kind="bakery", closed=False).nearest("location", ROME)
            assert [hit.record.id for hit in hits] == [1, 2]
            assert [hit.record.id for hit in tx[model].nearest("location", ROME)[:1]] == [1]
        assert entries(db.kv, "location") == shown
        require_exact(db, model)


def test_a_group_with_several_values_has_an_entry_for_each():
    class Stall(KvModel, collection="shops"):
        id: PrimaryKey[int]
        tags: list[str]
        location: GeoPoint

        class Meta:
            indexes = (GeoIndex("location", group="tags", name="by_tag"),)

    with Database("memory://", models=[Stall]) as db:
        db[Stall].create(id=1, tags=["b", "a", "b"], location=BERN)
        assert [entry[0] for entry in entries(db.kv, "by_tag")] == ["a", "b"]
        db[Stall].patch(1, tags=[])
        assert entries(db.kv, "by_tag") == []


# --- values that no entry can hold ------------------------------------------------------------------------------------


def unchecked(lat: Any, lon: Any) -> GeoPoint:
    """A point whose degrees nobody has validated."""
    return GeoPoint.model_construct(lat=lat, lon=lon)


class Spot(BaseModel):
    """The value that an old release has stored in place of a GeoPoint."""

    lat: Any
    lon: Any = 0


class OldShop(KvModel, collection="shops"):
    id: PrimaryKey[int]
    location: Spot | None = None
    kind: str | None = "bakery"
    closed: bool = False
    note: str = ""


BROKEN = [(91, 0), (0, -180.5), (math.nan, 0.0), (True, 0), ("1", 0), (None, 0), (2**80, 0)]


def test_an_index_is_built_for_stored_records_and_lists_those_that_it_cannot_hold(tmp_path: Any):
    new = with_places()
    path = tmp_path / "shops.db"
    with Database(path, models=[OldShop]) as db:
        db[OldShop].bulk_create([OldShop(id=n, location=Spot(lat=lat, lon=lon)) for n, (lat, lon) in enumerate(BROKEN)])
        db[OldShop].create(id=10, location=Spot(lat=46, lon=7.5))
        db[OldShop].create(id=11)
    with Database(path, models=[new]) as db:
        for report in db.build_indexes(new):
            found = [(violation.kind, violation.key) for violation in report.violations]
            assert found == [("not_encodable", key) for key in range(len(BROKEN))]
        for key in range(len(BROKEN)):
            db[new].remove(key)
        assert all(report.state == "readable" for report in db.build_indexes(new))
        require_exact(db, new)
        assert db.check(repair=True).ok
        assert [entry[1] for entry in entries(db.kv, "location")] == [10]


def test_a_place_that_nobody_validated_is_refused_before_anything_is_written():
    model = with_places()
    with Database("memory://", models=[model]) as db:
        for write in (
            lambda: db[model].insert(model.model_construct(id=1, location=unchecked(91.0, 0.0))),
            lambda: db[model].create(id=1, location=unchecked(0.0, math.inf)),
        ):
            with pytest.raises((InvalidValueError, ValueError)):
                write()
        assert list(db.kv.list(prefix=("shops",))) == []


def test_damage_is_found_and_repaired():
    model = with_places()
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=n, location=BERN) for n in range(3)])
        raw = db.kv.unsafe()
        raw.delete(("shops_by_location", cell(BERN), 0))
        raw.set(("shops_by_location", cell(BERN), 1), pack(">dd", 46.95, 7.45))
        raw.set(("shops_by_by_kind", "bakery", cell(ROME), 2), pack(">dd", 41.9, 12.5))
        assert sorted(finding.kind for finding in db.check().findings) == ["dangling", "dangling", "missing"]
        assert all(finding.repaired for finding in db.check(repair=True).findings)
        require_exact(db, model)


def test_a_dump_has_its_entries():
    model = with_places()
    file = io.BytesIO()
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=n, location=place) for n, place in enumerate(PLACES)])
        db.kv.dump(file)
        dumped = entries(db.kv, "by_kind")
    file.seek(0)
    with Database("memory://", models=[model]) as db:
        db.kv.load(file)
        assert entries(db.kv, "by_kind") == dumped
        assert db.check().ok


@pytest.mark.parametrize(
    "columns",
    [
        [["location.lat", "float"]],
        [["location.lon", "float"], ["location.lat", "float"]],
        [["location.lat", "float"], ["other.lon", "float"]],
        [["location.lat", "int"], ["location.lon", "float"]],
        [["location.lat", "float"]] * 3,
    ],
    ids=str,
)
def test_a_stored_description_with_other_columns_is_unknown(columns: Any):
    signature = schema_of(with_places()).indexes["location"].signature()
    assert not isinstance(definition_of("location", signature, "protect"), tuple)
    described = [[name, codec, "asc", False, {"path": name.split("."), "many": False}] for name, codec in columns]
    assert definition_of("location", {**signature, "options": {"columns": described}}, "protect") == ("options",)


def test_it_is_described_and_its_keys_are_explained():
    model = with_places()
    with Database("memory://", models=[model]) as db:
        db[model].create(id=1, location=BERN)
        assert [str(index) for index in describe(model).indexes] == [
            "geo location (location)",
            "geo by_kind (kind, location), where Q(closed=False)",
        ]
        explained = db.explain_key(("shops_by_by_kind", "bakery", cell(BERN), 1))
        assert (explained.kind, explained.columns, explained.primary_key) == (
            "entry",
            {"kind": "bakery", "cell of location": cell(BERN)},
            1,
        )


# --- declarations -----------------------------------------------------------------------------------------------------


class Address(BaseModel):
    city: str
    point: GeoPoint | None = None


class Peak(GeoPoint, frozen=True):
    height: int = 0


FIELDS: dict[str, Any] = {
    "id": PrimaryKey[int],
    "location": GeoPoint,
    "depot": GeoPoint | None,
    "peak": Peak,
    "several": list[GeoPoint],
    "address": Address | None,
    "homes": list[Address],
    "spot": Spot,
    "name": str,
}


def declare(*indexes: Any) -> Any:
    meta = type("Meta", (), {"indexes": indexes, "__qualname__": "Thing.Meta", "__module__": __name__})
    namespace = {"__annotations__": FIELDS, "__module__": __name__, "__qualname__": "Thing", "Meta": meta}
    return schema_of(cast("Any", type(KvModel))("Thing", (KvModel,), namespace))


Untyped: Any = GeoIndex


@pytest.mark.parametrize(
    ("declared", "message", "field"),
    [
        (lambda: GeoIndex(), "needs the names of one or more fields", None),
        (lambda: GeoIndex("location", "depot"), "has one field", None),
        (lambda: GeoIndex("location", group="location"), "names a field twice", "location"),
        (lambda: GeoIndex("-location"), "have no direction", "-location"),
        (lambda: GeoIndex("location", group="-name"), "have no direction", "-name"),
        (lambda: Untyped("location", group=[1]), "not a tuple of distinct field names", None),
        (lambda: Untyped("location", where="x"), "is not an expression", None),
        (lambda: Untyped("location", unique=True), "option does not exist", None),
        (lambda: GeoIndex("locaton"), "names a field that does not exist", "locaton"),
        (lambda: GeoIndex("address.pint"), "names a field that does not exist", "address.pint"),
        (lambda: GeoIndex("location", group="nam"), "names a field that does not exist", "nam"),
        (lambda: GeoIndex("name"), "is not a GeoPoint", "name"),
        (lambda: GeoIndex("address"), "is not a GeoPoint", "address"),
        (lambda: GeoIndex("spot"), "is not a GeoPoint", "spot"),
        (lambda: GeoIndex("several"), "one place for each record", "several"),
        (lambda: GeoIndex("homes.point"), "one place for each record", "homes.point"),
    ],
)
def test_a_wrong_declaration_is_refused_when_the_class_is_created(declared: Any, message: str, field: str | None):
    with pytest.raises(ModelDefinitionError, match=message) as caught:
        declare(declared())
    assert caught.value.hint
    assert caught.value.field == field
    assert caught.value.option is not None


def test_a_place_may_be_optional_nested_or_of_a_derived_class():
    indexes = declare(
        GeoIndex("depot"),
        GeoIndex("peak"),
        GeoIndex("address.point", group=("name", "id")),
        Index("location.lat"),
    ).indexes
    assert list(indexes) == ["depot", "peak", "name_id_address_point", "location_lat"]
