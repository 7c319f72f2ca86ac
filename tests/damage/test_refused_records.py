"""Records that a model does not accept any more are data: every repair keeps them, and ``remove`` takes them away."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest

from kvmodels.api._sync.database import Database
from kvmodels.errors import DecodeError
from kvmodels.flows.check.findings import CheckReport
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.declarations import AggregateIndex
from kvmodels.schema.declare.markers import Field, Indexed, PrimaryKey, Unique
from tests.damage.stores import FULL, KINDS_SPEC, OTHER, Zoo
from tests.oracle import audit, read_engine
from tests.worlds import MEMORY
from tests.zoo import Animal

COUNT = 50


class Ticket(KvModel, collection="tickets"):
    """As the first release declares it."""

    id: PrimaryKey[int]
    state: str = "open"
    title: str
    seat: Unique[int | None] = Field(default=None)
    price: Indexed[int] = Field(default=0)

    class Meta:
        indexes = (AggregateIndex("price", sums=("price",), name="per_price"),)


class _Later(KvModel, abstract=True):
    id: PrimaryKey[int]
    seat: Unique[int | None] = Field(default=None)
    price: Indexed[int] = Field(default=0)

    class Meta:
        indexes = (AggregateIndex("price", sums=("price",), name="per_price"),)


class WithOwner(_Later, collection="tickets"):
    """A new field that every record must have."""

    state: str = "open"
    title: str
    owner: str


class Stricter(_Later, collection="tickets"):
    """A state that the first release wrote is not allowed any more."""

    state: Literal["new", "closed"]
    title: str


class Shorter(_Later, collection="tickets"):
    """Titles that the first release wrote are too long."""

    state: str = "open"
    title: Annotated[str, Field(max_length=3)]


class Retyped(_Later, collection="tickets"):
    """Another type of a field that no index has."""

    state: str = "open"
    title: int


RELEASES = {WithOwner: ("owner", "missing"), Stricter: ("state", "literal_error"),
            Shorter: ("title", "string_too_long"), Retyped: ("title", "int_parsing")}  # fmt: skip


@pytest.fixture(params=MEMORY)
def url(request, url_of):
    return url_of(request.param)


@pytest.fixture
def first(url):
    with Database(url, models=[Ticket]) as db:
        db[Ticket].bulk_create([Ticket(id=n, title=f"ticket {n}", seat=n, price=n % 3) for n in range(COUNT)])
        yield db


def contents(db: Database) -> list[Any]:
    return [(entry.key, entry.value) for entry in db.kv.list(prefix=())]


def refused(report: CheckReport) -> set[tuple[str, bool]]:
    assert report.findings == report.undecodable
    return {(found.reason, found.repaired) for found in report.findings}


@pytest.mark.parametrize("release", RELEASES, ids=lambda model: model.__name__)
@pytest.mark.parametrize("repair", [False, True, "all"])
def test_records_that_the_model_refuses_are_reported_with_the_reason_and_kept_by_every_repair(
    first, url, release, repair
):
    before = contents(first)
    field, reason = RELEASES[release]
    with Database(url, models=[release]) as db:
        report = db.check(repair=repair)
        assert len(report.undecodable) == COUNT
        assert refused(report) == {(f"{field}: {reason}", False)}
        assert not report.ok
        lines = str(report).splitlines()
        assert f"0 foreign, {COUNT} undecodable, 0 computed" in lines[0]
        assert lines[1] == f"  undecodable tickets 0: {field}: {reason}"
        assert lines[6:] == [f"  and {COUNT - 5} more: see findings"]
        (hint,) = {str(found.hint) for found in report.findings}
        assert "remove" in hint
        assert "model" in hint
    assert contents(first) == before
    assert first.check().ok
    assert first[Ticket].count() == COUNT


@pytest.mark.parametrize("release", RELEASES, ids=lambda model: model.__name__)
def test_a_record_that_the_model_refuses_can_be_removed_by_its_key_with_all_its_entries(first, url, release):
    with Database(url, models=[release]) as db:
        with pytest.raises(DecodeError) as caught:
            db[release].get(7)
        assert "remove" in (caught.value.hint or "")
        assert db[release].remove(7) is True
        assert db[release].remove(7) is False
    assert first[Ticket].get_or_none(7) is None
    assert first[Ticket].count() == COUNT - 1
    assert first.check().findings == ()
    first[Ticket].insert(Ticket(id=COUNT, title="in the same seat", seat=7))


def test_rows_that_are_no_documents_are_deleted_by_all_and_refused_documents_beside_them_kept(first, url):
    first.kv.unsafe().set(("tickets", 3), "no document")
    with Database(url, models=[WithOwner]) as db:
        report = db.check(repair="all")
        (gone,) = [found for found in report.undecodable if found.repaired]
        assert (gone.primary_key, gone.reason) == (3, "a record that is not a map")
        assert len([found for found in report.undecodable if not found.repaired]) == COUNT - 1
    assert first[Ticket].count() == COUNT - 1
    assert first.check().findings == ()


@pytest.mark.parametrize(
    "damage", [{}, {"price": "many"}, {"seat": ["a"]}, {"price": None, "seat": {"no": "column"}}, {"id": 9}], ids=repr
)
def test_a_document_of_somebody_else_is_kept_by_every_repair_and_can_be_removed(first, damage):
    whole = first.kv.get(("tickets", 7)).value
    damaged = {**whole, **damage} if damage else {}
    first.kv.unsafe().set(("tickets", 7), damaged)
    report = first.check(repair="all")
    assert [(found.primary_key, found.repaired) for found in report.undecodable] == [(7, False)]
    assert first.kv.get(("tickets", 7)).value == damaged
    assert first[Ticket].remove(7) is True
    first.check(repair=True)
    assert first.check().findings == ()
    assert first[Ticket].count() == COUNT - 1
    assert first[Ticket].get(seat=9).id == 9


def test_a_document_under_the_key_of_another_record_leaves_the_slots_to_their_owner_when_it_is_removed(zoo: Zoo):
    key = ("animals", "east", 99)
    zoo.raw.set(key, zoo.db.kv.get(("animals", *FULL)).value)
    assert zoo.db[Animal].remove(("east", 99)) is True
    assert zoo.db[Animal].get(chip="c1").pk == FULL
    assert zoo.db.check().findings == ()
    assert zoo.faults() == []


def test_a_record_that_is_stored_over_a_document_of_another_one_claims_its_unique_values(zoo: Zoo):
    values: dict[str, Any] = {"species": "lynx", "name": "Di", "weight": 1, "berth": "b9"}
    zoo.raw.set(("animals", "east", 99), zoo.db.kv.get(("animals", *OTHER)).value)
    with pytest.raises(Exception, match="KV302"):
        zoo.db[Animal].save(Animal(park="east", number=99, chip="c3", **values), force=True)
    zoo.db[Animal].save(Animal(park="east", number=99, chip="c9", **values), force=True)
    assert zoo.db[Animal].get(chip="c3").pk == OTHER
    assert zoo.db[Animal].get(chip="c9").pk == ("east", 99)
    assert zoo.db.check().findings == ()
    assert zoo.faults() == []


def test_a_record_with_a_column_that_cannot_be_encoded_can_be_removed_from_every_kind_of_index(house):
    model = house.model
    record = house.db.kv.get((house.name, "east", 1))
    assert record.value is not None
    damages: tuple[dict[str, Any], ...] = (
        {"tags": ["a", 7]}, {"tags": 7}, {"habitat": {"zone": 1}}, {"habitat": 3}, {"age": "x"}, {"weight": "x"},
        {"stay": "x"}, {"meals": [{"food": []}]}, {"ward": 1.5}, {"$kv": 7}, {"$kv": {"c": {"name~casefold": 3}}},
    )  # fmt: skip
    for damage in damages:
        house.raw.set(record.key, {**record.value, **damage})
        assert [(one.primary_key, one.repaired) for one in house.db.check(repair="all").undecodable] in (
            [(("east", 1), False)],
            [],
        )
        assert house.db[model].remove(("east", 1)) is True, damage
        house.db.check(repair=True)
        assert house.db.check().findings == (), damage
        assert audit(read_engine(house.db._engine), [KINDS_SPEC[model]]) == []
