"""Exclusion constraints on the command line, on the admin page, and in a web service."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

from kvmodels import AsyncDatabase, Database, ExclusionConstraint, KvModel, ParsedLookups, PrimaryKey
from kvmodels.ext.fastapi import AsyncRepo, Lookups, add_error_handlers, lifespan
from tests.admin.html import ParsedPage
from tests.admin.shop import browsed
from tests.cli.conftest import Run, folder, run
from tests.kinds.exclusions import Booking

__all__ = ["folder", "run"]

PROGRAM = """
from kvmodels import Database, ExclusionConstraint, KvModel, PrimaryKey


class Booking(KvModel, collection="bookings"):
    id: PrimaryKey[int]
    room: str | None = "A"
    starts: int | None = None
    ends: int | None = None

    class Meta:
        indexes = (ExclusionConstraint("starts", "ends", group="room", name="no_overlap"),)


db = Database("hotel.db", models=[Booking])
"""
NINE = datetime(2026, 3, 2, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


class OldBooking(KvModel, collection="bookings"):
    """The release before."""

    id: PrimaryKey[int]
    room: str | None = "A"
    starts: int | None = None
    ends: int | None = None


class Late(KvModel, collection="bookings"):
    """As in the program."""

    id: PrimaryKey[int]
    room: str | None = "A"
    starts: int | None = None
    ends: int | None = None

    class Meta:
        indexes = (ExclusionConstraint("starts", "ends", group="room", name="no_overlap"),)


class Meeting(KvModel, collection="meetings"):
    id: PrimaryKey[int]
    room: str
    starts: datetime
    ends: datetime | None = None

    class Meta:
        indexes = (ExclusionConstraint("starts", "ends", group="room", name="no_overlap"),)


def test_the_command_line_finds_bookings_and_lists_those_that_overlap(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
):
    (folder / "hotel_app.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("KVMODELS_DATABASE", "hotel_app:db")
    with Database("hotel.db", models=[OldBooking]) as db:
        for key, starts, ends in ((1, 0, 4), (2, 2, 6), (3, 6, 8)):
            db[OldBooking].create(id=key, starts=starts, ends=ends)
    assert run("apply").exit_code == 1
    assert "bookings.no_overlap: 2 overlap (1)" in run("violations", "bookings").stdout
    assert '"holder":1' in run("violations", "bookings", "--json").stdout.replace(" ", "")
    refused = run("insert", "bookings", "-", stdin='{"id": 4, "starts": 7, "ends": 9}')
    assert refused.exit_code != 0
    assert "an interval overlaps that of another record" in refused.stderr
    with Database("hotel.db", models=[Late]) as db:
        db[Late].patch(2, starts=4)
    assert run("apply").exit_code == 0
    found = run("rows", "bookings", "room=A", "no_overlap__overlaps=5,7", "--json").stdout
    assert [one["id"] for one in json.loads(found)] == [2, 3]
    assert "1 range of index no_overlap" in run("explain", "bookings", "room=A", "no_overlap__contains=3").stdout
    wrong = run("rows", "bookings", "room=A", "no_overlap__overlaps=5")
    assert wrong.exit_code != 0
    assert "overlaps takes a start and an end" in wrong.stderr


def test_the_admin_page_shows_an_overlap_at_the_fields_of_start_and_end():
    with Database("memory://", models=[Booking]) as db:
        db[Booking].create(id=1, starts=0, ends=4)
        with browsed(db) as client:
            form = ParsedPage(client.get("/admin/records/bookings/new").text).form(id="2", starts="2", ends="6")
            answer = client.post("/admin/records/bookings/new", data=form)
            assert answer.status_code == 422
            assert answer.text.count("It overlaps the interval of another record: 1, 0 to 4.") == 2
            assert db[Booking].get_or_none(2) is None
            query = "/admin/records/bookings?room=A&cancelled=false&no_overlap__overlaps=3,9"
            assert ParsedPage(client.get(query).text).within("kv-key").split() == ["1"]


def test_a_service_answers_an_overlap_with_409_and_names_the_booking_in_the_way():
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Meeting])))
    add_error_handlers(app)

    @app.post("/meetings")
    async def book(repository: AsyncRepo[Meeting], meeting: Meeting) -> Meeting:
        return await repository.insert(meeting)

    @app.get("/meetings")
    async def found(
        repository: AsyncRepo[Meeting],
        lookups: Annotated[
            ParsedLookups, Depends(Lookups[Meeting]("room", "no_overlap__overlaps", "no_overlap__contains"))
        ],
    ) -> list[int]:
        return [one.id async for one in repository.filter(lookups.where).order_by("starts")]

    with TestClient(app) as client:
        for key, starts in ((1, NINE), (2, NINE + HOUR)):
            body = Meeting(id=key, room="A", starts=starts, ends=starts + HOUR).model_dump(mode="json")
            assert client.post("/meetings", json=body).status_code == 200
        body = Meeting(id=3, room="A", starts=NINE + HOUR / 2).model_dump(mode="json")
        refused = client.post("/meetings", json=body)
        assert refused.status_code == 409
        problem = refused.json()
        assert problem["code"] == "KV306"
        assert [one["loc"] for one in problem["errors"]] == [["body", "room"], ["body", "starts"], ["body", "ends"]]
        times = {"no_overlap__overlaps": ["2026-03-02T09:30Z", "2026-03-02T10:30Z"], "room": "A"}
        assert client.get("/meetings", params=times).json() == [1, 2]
        assert client.get("/meetings?room=A&no_overlap__overlaps=2026-03-02T10:30Z,").json() == [2]
        assert client.get("/meetings?room=A&no_overlap__contains=2026-03-02T09:30Z").json() == [1]
        wrong = client.get("/meetings?room=A&no_overlap__contains=soon")
        assert (wrong.status_code, wrong.json()["code"]) == (422, "KV706")
        assert client.get("/meetings?no_overlap__contains=2026-03-02T09:30Z").json()["code"] == "KV703"
        parameters = client.get("/openapi.json").json()["paths"]["/meetings"]["get"]["parameters"]
        schemas = {one["name"]: one["schema"] for one in parameters}
        assert schemas["no_overlap__overlaps"]["items"]["format"] == "date-time"
        assert schemas["no_overlap__contains"]["format"] == "date-time"
