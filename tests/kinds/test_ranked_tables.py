"""Ranked queries as dicts and as tables, with a column for the distance or the score."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    ForeignKey,
    GeoIndex,
    GeoPoint,
    Indexed,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    SearchIndex,
    UnknownFieldError,
    Vector,
    VectorIndex,
)

V2: Any = Vector.__class_getitem__(2)
HERE = GeoPoint(lat=46.95, lon=7.44)


class Town(KvModel, collection="towns"):
    name: PrimaryKey[str]
    people: Indexed[int]


class Shop(KvModel, collection="shops"):
    """A model with each kind of index that ranks."""

    id: PrimaryKey[int]
    town: ForeignKey[str, Town]
    text: str
    place: GeoPoint
    look: V2

    class Meta:
        indexes: ClassVar = (
            GeoIndex("place"),
            SearchIndex("text", name="by_text"),
            VectorIndex("look", metric="l2", name="by_look"),
        )


class Match(KvModel, collection="matches"):
    """A field with the name of the score, and one with that of the distance as the primary key."""

    distance: PrimaryKey[int]
    score: int
    town: ForeignKey[str, Town]
    text: str = "a match"
    place: GeoPoint = HERE

    class Meta:
        indexes: ClassVar = (SearchIndex("text", name="by_text"), GeoIndex("place"))


MODELS = (Town, Shop, Match)
RECORDS = [
    Town(name="Bern", people=134_000),
    Town(name="Chur", people=38_000),
    *(
        Shop(
            id=number,
            town="Bern" if number % 3 else "Chur",
            text="books " * number + "and pens",
            place=GeoPoint(lat=46.95, lon=7.44 + number / 1_000),
            look=Vector([number, 1]),
        )
        for number in range(30)
    ),
    Match(distance=1, score=7, town="Bern"),
]


@pytest.fixture
def db() -> Iterator[Database]:
    with Database("memory://", models=MODELS) as opened:
        for record in RECORDS:
            opened[type(record)].insert(record)
        yield opened


def ranked(db: Any) -> dict[str, Any]:
    """A query by each kind of index."""
    shops = db[Shop].filter(id__gt=1)
    return {
        "nearest": shops.nearest("place", HERE),
        "search": shops.search("by_text", "books"),
        "similar": shops.similar("by_look", [4.25, 1])[1:20],
    }


def rows_of(query: Any) -> list[dict[str, Any]]:
    """The hits of a query as the values of all fields, with the number of each."""
    name = "score" if query._query.ranked.scored else "distance"
    return [{field: getattr(one, field) for field in Shop.model_fields} | {name: number} for one, number in query]


KINDS = pytest.mark.parametrize("kind", ["nearest", "search", "similar"])


@KINDS
def test_values_are_those_of_the_hits_with_the_number_last(db: Database, kind: str):
    query = ranked(db)[kind]
    wanted = rows_of(query)
    values = query.values()
    assert values.to_list() == [*values] == wanted
    assert [list(one) for one in wanted] == [list(one) for one in values]
    assert (values.first(), values[3], values.count()) == (wanted[0], wanted[3], len(wanted))
    if kind != "similar":
        assert values.filter(id__lte=5).to_list() == [one for one in wanted if one["id"] <= 5]
        first = values.page(4)
        rest = values.page(100, after=first.next_cursor)
        assert [*first, *rest] == wanted


@KINDS
def test_a_table_has_the_rows_of_values_and_a_column_of_floats(db: Database, kind: str, tmp_path: Path):
    query = ranked(db)[kind]
    ids, name = [one.record.id for one in query], "score" if kind == "search" else "distance"
    table = query.to_arrow(columns=("id", "text"))
    assert table.column_names == ["id", "text", name]
    assert (
        table.to_pylist() == query.values("id", "text").to_list() == query.values("id", "text").to_arrow().to_pylist()
    )
    assert table["id"].to_pylist() == ids
    assert table.schema.field(name) == pa.field(name, pa.float64(), nullable=False)
    assert [*query.to_arrow().column_names] == [*Shop.model_fields, name]
    assert query.to_pandas()[name].to_list() == table[name].to_pylist()
    assert query.to_polars(columns=(name, "id")).columns == [name, "id"]
    assert pl.DataFrame(query.values("id"))["id"].to_list() == ids
    assert query.to_parquet(tmp_path / "found.parquet", columns=("id",)) == len(ids)
    assert pq.read_table(tmp_path / "found.parquet").column_names == ["id", name]
    assert query.values("id", "text").to_arrow(columns=("text",)).column_names == ["text"]
    assert query[:0].to_arrow().schema == query.to_arrow().schema


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_a_table_of_many_rows_has_each_once_in_order(engine: str, tmp_path: Path):
    url = "memory://" if engine == "memory" else f"sqlite:///{tmp_path}/shops.db"
    with Database(url, models=MODELS) as db:
        db[Town].create(name="Bern", people=1)
        places = [GeoPoint(lat=46.95, lon=7 + number * 7_919 % 1_300 / 1_000) for number in range(1_300)]
        db[Shop].bulk_create(
            Shop(id=number, town="Bern", text="", place=place, look=Vector([1, 1]))
            for number, place in enumerate(places)
        )
        nearest = db[Shop].nearest("place", HERE)
        wanted = [(one.id, metres) for one, metres in nearest.to_list()]
        found = nearest.to_arrow(columns=("id",)).to_pydict()
    assert len(wanted) == 1_300
    assert list(zip(found["id"], found["distance"], strict=True)) == wanted


@KINDS
def test_fields_of_targets_are_read_too(db: Database, kind: str):
    query = ranked(db)[kind]
    towns = {one.name: one.people for one in db[Town]}
    found = query.values("id", "town__people").to_list()
    assert [one["town__people"] for one in found] == [towns[hit.record.town] for hit in query]
    assert query.to_arrow(columns=("id", "town__people")).to_pylist() == found
    if kind != "similar":
        large = query.filter(town__people__gt=100_000).values("id", "town__people").to_list()
        assert large == [one for one in found if one["town__people"] > 100_000] != []


@KINDS
async def test_the_asynchronous_facade_has_them_too(db: Database, kind: str):
    async with AsyncDatabase("memory://", models=MODELS) as other:
        for record in RECORDS:
            await other[type(record)].insert(record.model_copy())
        mine, theirs = ranked(db)[kind], ranked(other)[kind]
        assert [one async for one in theirs.values()] == mine.values().to_list() == await theirs.values().to_list()
        assert await theirs[0:3].values("id").first() == mine.values("id").first()
        assert (await theirs.to_arrow()).equals(mine.to_arrow())
        assert (await theirs.to_pandas()).equals(mine.to_pandas())


def test_a_transaction_reads_its_own_writes(db: Database):
    with db.transaction() as tx:
        tx[Shop].patch(20, look=Vector([4.25, 1]))
        found = tx[Shop].similar("by_look", [4.25, 1])[:2].to_arrow(columns=("id",)).to_pydict()
    assert found == {"id": [20, 4], "distance": [0.0, 0.25]}


def test_a_field_with_the_name_of_the_number_is_left_out(db: Database):
    found, near = db[Match].search("by_text", "match"), db[Match].nearest("place", HERE)
    for refused, argument in (
        (found.values, "values"),
        (found.to_arrow, "columns"),
        (near.values, "values"),
        (near.to_pandas, "columns"),
    ):
        with pytest.raises(InvalidArgumentError, match="a field of the model has the name of the") as caught:
            refused()
        assert caught.value.argument == argument
    (row,) = found.values("distance", "score")
    assert row == {"distance": 1, "score": found[0].score}
    assert near.to_arrow(columns=("score",)).to_pylist() == [{"score": 7, "distance": 0.0}]
    assert near.values("town__people", "score").to_list() == [{"town__people": 134_000, "score": 7, "distance": 0.0}]


def test_what_the_query_cannot_give_is_refused_before_a_read(db: Database):
    shops = db[Shop]
    with pytest.raises(InvalidArgumentError, match="only that of the first results"):
        shops.similar("by_look", [1, 1]).to_arrow()
    with pytest.raises(UnknownFieldError, match="no field of this name"):
        shops.nearest("place", HERE).values("nmae")
    with pytest.raises(InvalidArgumentError, match="no column of this name"):
        shops.nearest("place", HERE).values("id").to_arrow(columns=("text",))
    with pytest.raises(InvalidArgumentError, match=r"Call values\(\) after nearest\(\)"):
        shops.values("id").nearest("place", HERE)
