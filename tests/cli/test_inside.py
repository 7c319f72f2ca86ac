"""``info``, ``stats`` and ``inspect``: a store without the classes of its program."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Annotated

import pytest

from kvmodels import AggregateIndex, Database, Index, Indexed, KvModel, ManyToMany, PrimaryKey, Q, Unique
from kvmodels.cli.model_source import model_source
from tests.cli.airports import PROGRAM
from tests.cli.conftest import entries_in


@pytest.fixture(params=["airports.db", "lmdb:///airports.lmdb"])
def url(request: pytest.FixtureRequest, folder, monkeypatch: pytest.MonkeyPatch, run) -> str:
    """The URL of a filled store."""
    del run  # it lets the folder's programs be imported again
    (folder / "airports_app.py").write_text(PROGRAM)
    monkeypatch.setenv("AIRPORTS", request.param)
    monkeypatch.syspath_prepend(str(folder))
    vars(import_module("airports_app"))["fill"]()
    return request.param


def test_info_lists_collections_and_indexes_that_are_not_ready(url, run):
    result = run("info", "-d", url)
    assert result.stderr == "stored format: 2\n"
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["collection", "model", "schema_version", "fields", "indexes", "not_ready"],
        ["airports", "1", "9", "7"],
        ["countries", "1", "2", "1"],
    ]
    found = json.loads(run("info", "-d", "airports_app:db", "--json").stdout)
    assert [one["model"] for one in found["collections"]] == ["Airport", "Country"]
    assert found["collections"][0]["primary_key"] == ["icao"]


def test_stats_counts_rows_and_bytes(url, run):
    lines = [line.split() for line in run("stats", "-d", url).stdout.splitlines()]
    counts = {line[0]: int(line[1]) for line in lines if line[0].startswith(("airports", "countries"))}
    assert counts["airports"] == counts["airports.highest"] == 4
    assert counts["airports.modern"] == 1
    assert counts["airports.services"] == 3
    assert [line[2:4][-1] for line in lines if line[0] == "airports"] == ["B"]
    assert [line[0].partition(".")[0] for line in lines if line[0] in ("airports", "countries")] == [
        "airports",
        "countries",
    ], "the largest collection comes first"
    exact = json.loads(run("stats", "-d", url, "--exact", "--json").stdout)
    assert exact["exact"]
    assert exact["other"]["rows"] == 1
    assert len(exact["files"]) >= 1


def test_the_printed_module_opens_the_store(url, run, folder):
    result = run("inspect", "-d", url)
    assert result.exit_code == 0
    assert "    city: Annotated[str, Indexed(key=str.casefold, name='city')]\n" in result.stdout
    assert "UUID" not in result.stdout
    (folder / "printed_app.py").write_text(result.stdout)
    module = vars(import_module("printed_app"))
    assert [model.__name__ for model in module["MODELS"]] == ["Airports", "Countries"]
    airports, countries = module["MODELS"]
    with Database(url, models=[airports, countries]) as db:
        assert not [one for one in db.indexes() if not one.declared]
        assert db[airports].get(city="BERN").icao == "LSZB"
        assert next(iter(db[airports].filter(country="CH").order_by("-elevation"))).icao == "LSZB"
        assert db[airports].filter(size="large").count() == 2
        assert db[airports].filter(services__contains="rail").count() == 2
        assert db[airports].get("BIRK").opened.year == 1940
        db[countries].create(code="IT", name="Italia")
    assert run("count", "airports", "city=bern", "-d", "printed_app:db").stdout == "1\n"


def first_letter(name: str) -> str:
    return name[:1]


class Person(KvModel, collection="people"):
    id: PrimaryKey[int]
    name: str
    email: Annotated[str | None, Unique(key=str.lower, nulls="skip")] = None
    town: Annotated[str, Indexed(key=str.casefold, where=Q(active=True), include=("name",), descending=True)] = ""
    street: Annotated[str, Indexed(key=str.upper, store="record")] = ""
    active: bool = True

    class Meta:
        indexes = (Index("name", key=first_letter, version=1, name="initial"), Index("email", "name", name="both"))


def test_an_index_with_a_function_of_the_program_is_a_comment():
    with Database("memory://", models=[Person]) as db:
        source = model_source(db.collections(), db.indexes())
    assert "    # not declared here: index initial (initial)\n" in source
    assert "    email: Annotated[str | None, Unique(key=str.lower, name='email', nulls='skip')]\n" in source
    assert "Index('email', 'name', name='both')" in source
    assert source.count("not declared here") == 1
    assert "AsyncDatabase" not in source


class Sale(KvModel, collection="sales"):
    id: PrimaryKey[int]
    cents: int = 0

    class Meta:
        indexes = (AggregateIndex(sums=("cents",), name="turnover"),)


def test_counters_over_all_records_are_printed():
    with Database("memory://", models=[Sale]) as db:
        source = model_source(db.collections(), db.indexes())
    assert "            AggregateIndex(name='turnover', sums=('cents',)),\n" in source


class Label(KvModel, collection="labels"):
    id: PrimaryKey[int]


class Parcel(KvModel, collection="parcels"):
    id: PrimaryKey[int]
    labels: ManyToMany[Label] = ManyToMany()


def test_foreign_keys_in_primary_keys_are_printed_as_those_of_links(folder, run, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    with Database("parcels.db", models=[Label, Parcel]):
        pass
    (folder / "parcels_app.py").write_text(run("inspect", "-d", "parcels.db").stdout)
    printed = vars(import_module("parcels_app"))["MODELS"]
    assert [model.__name__ for model in printed] == ["Labels", "Parcels", "ParcelsLabels"]
    with Database("parcels.db", models=printed) as db:
        assert not db.plan().steps


def test_folded_fields_are_printed_with_all_options_of_their_indexes(folder, run, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    with Database("people.db", models=[Person]) as db:
        db[Person].create(id=1, name="Ada", town="Zürich", street="Main")
    (folder / "people_app.py").write_text(run("inspect", "-d", "people.db").stdout)
    [printed] = vars(import_module("people_app"))["MODELS"]
    with Database("people.db", models=[printed]) as db:
        assert {one.index.name for one in db.indexes() if not one.declared} == {"initial"}
        assert [one.name for one in db[printed].filter(town="ZÜRICH", active=True)] == ["Ada"]
        assert db[printed].filter(street="mAIN").count() == 1


def test_a_store_without_models_has_nothing_to_list(folder, run):
    with Database("plain.db") as db:
        db.kv.set(("a",), 1)
    before = entries_in("plain.db")
    assert run("info", "-d", "plain.db").stderr.splitlines()[-1] == "the store has no collections"
    assert "MODELS = []" in run("inspect", "-d", "plain.db").stdout
    assert run("stats", "-d", "plain.db").exit_code == 0
    assert entries_in("plain.db") == before


@pytest.mark.parametrize("command", ["info", "stats", "inspect"])
def test_files_that_are_no_stores_are_refused(folder, run, command):
    (folder / "notes.db").write_bytes(b"no database" * 100)
    for name in ("missing.db", "notes.db"):
        result = run(command, "-d", name)
        assert result.exit_code == (2 if name == "missing.db" else 3)
        assert result.stderr.startswith("Error: no store" if name == "missing.db" else "Error: [KV9")
        assert result.stdout == ""
    assert (folder / "notes.db").read_bytes() == b"no database" * 100
    assert not (folder / "missing.db").exists()
