"""``describe(Model)``: a class as plain data, equal to what the catalogue of a store says about it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from datetime import date, timedelta
from enum import Enum, IntEnum
from typing import Any, Literal

import pytest

from kvmodels import Database, Expression, ForeignKey, Index, KvModel, ModelDefinitionError, PrimaryKey, Q, describe
from kvmodels.catalog.catalogue import IndexState, index_definition, stored_index
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.describe.conditions import condition_text
from tests.describe.models import MODELS, Author, Book, Shelf


def test_fields_say_their_type_and_who_sets_them():
    book = describe(Book)
    assert (book.name, book.collection, book.schema_version, book.ttl_seconds) == ("Book", "books", 1, None)
    fields = {field.name: field for field in book.fields}
    assert list(fields) == list(Book.model_fields)
    assert (fields["id"].type, fields["id"].required, fields["id"].nullable) == ("int", True, False)
    assert (fields["published"].required, fields["published"].nullable) == (False, True)
    assert [field.automatic for field in book.fields][-2:] == ["AutoNow", "Version"]
    assert book.time_fields == ("changed_at", "revision")
    assert book.hooks == ("before_insert",)
    assert [(column.name, column.type) for column in describe(Shelf).primary_key] == [
        ("room", "str"),
        ("number", "int"),
    ]


def test_indexes_say_their_kind_columns_and_options():
    assert [str(index) for index in describe(Book).indexes] == [
        "index title (title)",
        "index tags (tags)",
        "index genre_price (genre, -price), includes pages",
        "index essays (published), where Q(genre='essay')",
        "unique titles (genre, title)",
        "aggregate genre_totals (genre), sums pages",
        "foreign_key author_id (author_id), references authors, on delete cascade",
    ]
    by_name = {index.name: index for index in describe(Book).indexes}
    assert by_name["title"].columns[0].computed
    assert by_name["tags"].columns[0].many
    assert [column.descending for column in by_name["genre_price"].columns] == [False, True]
    assert by_name["titles"].unique


def test_the_catalogue_describes_an_index_like_its_class():
    with Database("memory://", models=MODELS) as db:
        stored = {(one.collection, one.index.name): one.index for one in db.indexes()}
    declared = {(d.collection, i.name): i for d in map(describe, MODELS) for i in d.indexes}
    assert stored == declared


def test_a_target_that_is_not_known_yet_is_named_by_its_class():
    class Leaf(KvModel, collection="leaves"):
        id: PrimaryKey[int]
        tree_id: ForeignKey[int, "Tree"]  # type: ignore[name-defined]  # noqa: F821, UP037

    assert [index.references for index in describe(Leaf).indexes] == ["Tree"]


@pytest.mark.parametrize("other", [int, "Book", Author(id=1), KvModel])
def test_only_a_model_class_is_described(other: Any):
    with pytest.raises(ModelDefinitionError):
        describe(other)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Rank(IntEnum):
    LOW = 1
    HIGH = 2


def conditions(expression: Expression) -> tuple[str, str]:
    """The texts of a condition as it is declared, and as a store without the class has it."""

    class Thing(KvModel, collection="things"):
        id: PrimaryKey[int]
        name: str = ""
        price: float | None = None
        day: date | None = None
        colour: Colour = Colour.RED
        rank: Rank = Rank.LOW
        kind: Literal["a", "b"] = "a"
        lasts: timedelta = timedelta()
        city: dict[str, str] = {}

        class Meta:
            indexes = (Index("name", where=expression, name="part"),)

    declared = schema_of(Thing).indexes["part"]
    again = index_definition(stored_index(declared, 1, IndexState.READABLE))
    assert declared.where is not None
    assert again.where is not None
    text = condition_text(again.where)
    if "..." not in text:  # what is shown can be declared, and is then the same index

        class Copy(KvModel, collection="things"):
            id: PrimaryKey[int]
            name: str = ""
            price: float | None = None
            day: date | None = None
            colour: str = ""
            rank: int = 0
            kind: str = ""
            lasts: timedelta = timedelta()

            class Meta:
                indexes = (Index("name", where=eval(text, {"Q": Q, "datetime": dt}), name="part"),)

        assert schema_of(Copy).indexes["part"].signature()["where"] == again.where.signature()
    return condition_text(declared.where), text


CONDITIONS: Sequence[tuple[Expression, str]] = [
    (Q(kind="a"), "Q(kind='a')"),
    (~Q(name="x"), "Q(name__ne='x')"),
    (Q(name__in=["b", "a"]), "Q(name__in=['a', 'b'])"),
    (Q(name__not_in=["b", "a"]), "Q(name__not_in=['a', 'b'])"),
    (Q(day=None), "Q(day__isnull=True)"),
    (Q(price__in=[None, 2]), "Q(price__in=[None, 2.0])"),
    (Q(day__isnull=False), "Q(day__isnull=False)"),
    (Q(price__gt=1, price__lte=2), "Q(price__gt=1.0, price__lte=2.0)"),
    (Q(price__range=(1, 2)), "Q(price__gte=1.0, price__lte=2.0)"),
    (~Q(day__gte=date(2026, 1, 1)), "(Q(day__isnull=True) | Q(day__lt='2026-01-01'))"),
    (Q(name__startswith="ab"), "Q(name__startswith='ab')"),
    (Q(name__startswith="a", name__gt="ab"), "Q(name=...)"),
    (Q(colour=Colour.RED), "Q(colour='red')"),
    (Q(rank__gte=Rank.HIGH), "Q(rank__gte=2)"),
    (Q(lasts__lt=timedelta(hours=1)), "Q(lasts__lt=datetime.timedelta(seconds=3600))"),
    (Q(kind="a", rank=1), "Q(kind='a') & Q(rank=1)"),
    (Q(kind="a", rank=1) | Q(price__lt=3), "(Q(kind='a') & Q(rank=1)) | Q(price__lt=3.0)"),
]


@pytest.mark.parametrize(("expression", "text"), CONDITIONS)
def test_a_stored_condition_is_shown_as_an_expression(expression: Expression, text: str):
    declared, stored = conditions(expression)
    assert declared == stored == text
