"""A GeoPoint as a value: what it accepts, how it is stored, shown in schemas and made by factories."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import ValidationError

from kvmodels import Database, GeoPoint, KvModel, PrimaryKey, describe
from kvmodels.testing.factories import KvFactory

BERN = GeoPoint(lat=46.95, lon=7.44)


class Shop(KvModel, collection="shops"):
    id: PrimaryKey[int]
    location: GeoPoint
    depot: GeoPoint | None = None


def test_a_point_is_an_immutable_value():
    assert GeoPoint(lat=46.95, lon=7.44) == BERN
    assert len({BERN, GeoPoint(lat=46.95, lon=7.44), pickle.loads(pickle.dumps(BERN))}) == 1
    assert repr(BERN) == "GeoPoint(lat=46.95, lon=7.44)"
    with pytest.raises(ValidationError, match="frozen"):
        cast("Any", BERN).lat = 1.0


@pytest.mark.parametrize(
    "given",
    [
        {"lat": 46.95, "lon": 7.44},
        {"lat": "46.95", "lon": 7.44},
        {"type": "Point", "coordinates": [7.44, 46.95]},
        {"type": "Point", "coordinates": (7.44, 46.95, 540), "bbox": []},
        BERN,
    ],
)
def test_forms_that_are_read(given: Any):
    assert GeoPoint.model_validate(given) == BERN
    assert Shop(id=1, location=given).location == BERN


REFUSED: list[Any] = [
    (46.95, 7.44),
    [7.44, 46.95],
    {"lat": 91, "lon": 0},
    {"lat": 0, "lon": -180.0000001},
    {"lat": math.nan, "lon": 0},
    {"lat": 0, "lon": math.inf},
    {"lat": 46.95},
    {"lat": 46.95, "lon": 7.44, "height": 540},
    {"type": "Polygon", "coordinates": [7.44, 46.95]},
    {"type": "Point", "coordinates": [7.44]},
    {"type": "Point", "coordinates": "7.44, 46.95"},
    {"type": "Point", "coordinates": [7.44, 95]},
    "46.95, 7.44",
    None,
]


@pytest.mark.parametrize("given", REFUSED, ids=repr)
def test_other_forms_are_refused(given: Any):
    with pytest.raises(ValidationError):
        GeoPoint.model_validate(given)
    with pytest.raises(ValidationError):
        Shop(id=1, location=given)


def test_positional_numbers_are_refused():
    make: Any = GeoPoint
    with pytest.raises(TypeError):
        make(46.95, 7.44)
    with pytest.raises(ValidationError, match="does not say which number is the latitude"):
        GeoPoint.model_validate((46.95, 7.44))


def test_a_field_is_stored_as_a_map_by_names_and_read_again(tmp_path: Any):
    with Database(tmp_path / "shops.db", models=[Shop]) as db:
        db[Shop].create(id=1, location=BERN)
        db[Shop].create(id=2, location={"type": "Point", "coordinates": [-180, 90]}, depot=BERN)
        db[Shop].patch(1, depot=GeoPoint(lat=-90, lon=180))
        assert db.kv.get(("shops", 1)).value["location"] == {"lat": 46.95, "lon": 7.44}
        assert [(shop.location, shop.depot) for shop in db[Shop].all()] == [
            (BERN, GeoPoint(lat=-90, lon=180)),
            (GeoPoint(lat=90, lon=-180), BERN),
        ]
        assert db[Shop].filter(depot=None).allow_scan().count() == 0


def test_json_has_the_names():
    shop = Shop(id=1, location=BERN)
    assert json.loads(shop.model_dump_json()) == {"id": 1, "location": {"lat": 46.95, "lon": 7.44}, "depot": None}
    schema = GeoPoint.model_json_schema()
    assert schema["required"] == ["lat", "lon"]
    assert schema["properties"]["lat"] == {
        "description": "Latitude in degrees.", "maximum": 90, "minimum": -90, "title": "Lat", "type": "number",
    }  # fmt: skip
    assert [field.type for field in describe(Shop).fields] == ["int", "GeoPoint", "GeoPoint | None"]


def test_fastapi_reads_and_documents_a_point():
    app = FastAPI()

    @app.post("/shops")
    def create(shop: Shop) -> Shop:
        return shop

    with TestClient(app) as client:
        sent = {"id": 1, "location": {"type": "Point", "coordinates": [7.44, 46.95]}}
        assert client.post("/shops", json=sent).json()["location"] == {"lat": 46.95, "lon": 7.44}
        refused = client.post("/shops", json={"id": 1, "location": [46.95, 7.44]})
        assert refused.status_code == 422
        assert refused.json()["detail"][0]["loc"] == ["body", "location"]
        assert "GeoPoint" in client.get("/openapi.json").json()["components"]["schemas"]


def test_a_factory_makes_points_of_the_earth():
    for shop in KvFactory.of(Shop).batch(50):
        assert -90 <= shop.location.lat <= 90
        assert -180 <= shop.location.lon <= 180
