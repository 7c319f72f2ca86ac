"""The entries and counters that a stored document calls for, for every kind of index, from the document alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field

from kvmodels.catalog.catalogue import (
    Header,
    IndexState,
    StoredCollection,
    StoredIndex,
    index_definition,
    stored_collection,
    stored_index,
)
from kvmodels.catalog.collection import LiveCollection, join
from kvmodels.catalog.keyspace import EntryLayout, counted_by, counter_key, counter_prefix, index_layout
from kvmodels.codecs.columns.registry import column_codec
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.errors import InvalidValueError, SchemaMismatchError
from kvmodels.indexing.entries import StoredRecord
from kvmodels.indexing.kinds.registry import maintenance_for
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.declarations import AggregateIndex, Index, UniqueConstraint
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.declare.markers import PrimaryKey
from kvmodels.schema.definition.definition import Column, IndexDefinition, ModelSchema
from kvmodels.schema.definition.values import reader


class Address(BaseModel):
    city: str | None = None
    lines: list[str | None] | None = Field(default_factory=list)


def folded(text: str) -> str:
    return text.casefold()


PK = encode_key((1,))


def declare(*indexes: Any, **fields: Any) -> ModelSchema:
    """A model of these fields and indexes."""
    known: dict[str, Any] = {
        "id": PrimaryKey[int],
        "text": str | None,
        "number": int | None,
        "several": list[int] | None,
        "address": Address | None,
        "homes": list[Address],
        "span": timedelta,
    }
    namespace: dict[str, Any] = {"__annotations__": {**known, **fields}, "__module__": __name__, "__qualname__": "T"}
    namespace["Meta"] = type("Meta", (), {"__qualname__": "T.Meta", "__module__": __name__, "indexes": indexes})
    metaclass: Any = type(KvModel)
    return schema_of(metaclass("T", (KvModel,), namespace, collection="t"))


def layout_of(*indexes: Any) -> Any:
    *_, definition = declare(*indexes).indexes.values()
    return index_layout("t", definition, 1)


def document(**values: Any) -> dict[str, Any]:
    return {"id": 1, "text": "a", "number": 5, "several": [], "address": None, "homes": [], "span": 7, **values}


def keys(layout: EntryLayout, **values: Any) -> list[tuple[tuple[Any, ...], bool]]:
    stored = document(**values)
    assert layout.covers(stored)
    found = layout.keys(stored, PK)
    assert list(found) == sorted(set(found))
    for key, slot in found:
        assert layout.pk_in(key) == (b"" if slot else PK)
    return [(decode_key(key)[1:], slot) for key, slot in found]


# --- several values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([3, -1, 3], [(-1, 1), (3, 1)]),
        ({2, 1}, [(1, 1), (2, 1)]),
        (frozenset({2}), [(2, 1)]),
        ([], []),
        ([None], []),
        ([None, 4], [(4, 1)]),
        (None, [(b"", 1)]),
    ],
)
def test_a_record_has_an_entry_for_each_different_element(stored, expected):
    assert keys(layout_of(Index("several")), several=stored) == [(key, False) for key in expected]


def test_a_field_that_is_none_may_have_no_entry():
    layout = layout_of(Index("several", nulls="skip"))
    assert keys(layout, several=None) == []
    assert keys(layout, several=[1]) == [((1, 1), False)]


def test_a_unique_index_has_a_slot_for_each_element():
    layout = layout_of(UniqueConstraint("several"))
    assert keys(layout, several=[2, 1]) == [((1,), True), ((2,), True)]
    assert keys(layout, several=None) == [((b"", 1), False)]
    assert keys(layout_of(UniqueConstraint("several", nulls="equal")), several=None) == [((b"",), True)]
    assert keys(layout_of(UniqueConstraint("several", nulls="skip")), several=None) == []


def test_several_values_stand_among_other_columns_in_either_direction():
    layout = layout_of(Index("text", "-several", "number"))
    found = keys(layout, several=[1, 2], text=None)
    assert [key[0] for key, _ in found] == [b"", b""]
    assert [layout.columns_in(entry.key) for entry in layout.keys(document(several=[1, 2]), PK)] == [
        ("a", 2, 5),
        ("a", 1, 5),
    ]
    assert keys(layout_of(Index("text", "several", nulls="skip")), text=None, several=[1]) == []


def test_more_elements_than_the_bound_are_for_the_writer_to_refuse():
    layout = layout_of(Index("several", max_fan_out=2))
    assert len(keys(layout, several=[1, 2, 3])) == 3


def test_an_element_that_no_column_holds_names_its_field():
    for layout in (layout_of(Index("several")), layout_of(AggregateIndex("several"))):
        with pytest.raises(InvalidValueError) as caught:
            layout.heads(document(several=["x"]))
        assert caught.value.field == "several"


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "values", "expected"),
    [
        ("address.city", {"address": None}, [b""]),
        ("address.city", {"address": {"city": None, "lines": []}}, [b""]),
        ("address.city", {"address": {"city": "Rome", "lines": []}}, ["Rome"]),
        ("address.lines", {"address": None}, [b""]),
        ("address.lines", {"address": {"city": None, "lines": None}}, [b""]),
        ("address.lines", {"address": {"city": None, "lines": ["b", None, "a"]}}, ["a", "b"]),
        ("homes.city", {"homes": [{"city": "b"}, {"city": None}, {"city": "a"}, {"city": "b"}]}, ["a", "b"]),
        ("homes.city", {"homes": []}, []),
        ("homes.lines", {"homes": [{"lines": ["b"]}, {"lines": None}, {"lines": ["a", "b"]}]}, ["a", "b"]),
    ],
)
def test_a_path_is_walked_through_what_is_stored(path, values, expected):
    assert [key[0] for key, _ in keys(layout_of(Index(path)), **values)] == expected


@pytest.mark.parametrize(
    "values",
    [
        {"address": {}},
        {"address": "Rome"},
        {"address": ["Rome"]},
        {"address": 5},
    ],
)
def test_a_document_that_does_not_hold_a_path_is_not_covered(values):
    assert not layout_of(Index("address.city")).covers(document(**values))
    assert not layout_of(Index("number", where=Q(address__city="x"))).covers(document(**values))


@pytest.mark.parametrize("stored", ["abc", 5, {"a": 1}, b"x"])
def test_what_is_no_list_is_not_covered(stored):
    assert not layout_of(Index("several")).covers(document(several=stored))


@pytest.mark.parametrize(
    ("index", "field"),
    [
        (Index("text", include=("number",)), "number"),
        (Index("text", where=Q(number=1)), "number"),
        (Index("several"), "several"),
        (AggregateIndex("text"), "text"),
        (AggregateIndex(sums=("number",)), "number"),
        (Index("text", key=folded, version=1, name="x"), "$kv"),
    ],
)
def test_a_document_that_lacks_what_an_index_asks_for_is_not_covered(index, field):
    whole = document(**{"$kv": {"c": {"x(text)~1": "a"}}})
    layout = layout_of(index)
    assert layout.covers(whole)
    del whole[field]
    assert not layout.covers(whole)


def test_a_value_made_by_another_version_of_a_function_or_of_other_fields_is_none_of_this_one():
    layout = layout_of(Index("text", key=folded, version=2, name="x"))
    assert not layout.covers(document(**{"$kv": {"v": 2, "c": {"x(text)~1": "a"}}}))
    assert not layout.covers(document(**{"$kv": {"c": {"x(number)~2": "a"}}}))
    assert layout.covers(document(**{"$kv": {"c": {"x(text)~2": None}}}))


def test_a_path_through_a_value_of_a_computed_column_is_read_below_the_data_of_the_library():
    read = reader(("$kv", "c", "x~1"), many=True)
    assert read({"$kv": {"c": {"x~1": ["a"]}}}) == ["a"]
    assert read({"$kv": {"c": {"x~1": None}}}) is None


@pytest.mark.parametrize("broken", [{}, {"$kv": {}}, {"$kv": 5}, {"$kv": {"c": []}}, {"$kv": {"c": {"x~1": "a"}}}])
def test_data_of_the_library_that_are_damaged_hold_no_value(broken):
    with pytest.raises(KeyError):
        reader(("$kv", "c", "x~1"), many=True)(broken)


# --- conditions, included fields, counters ----------------------------------------------------------------------------


def test_a_document_outside_of_the_condition_has_neither_entries_nor_groups():
    for index in (Index("text", where=Q(number__gt=5)), UniqueConstraint("text", where=Q(number__gt=5))):
        assert keys(layout_of(index), number=5) == []
        assert len(keys(layout_of(index), number=6)) == 1
    counted = layout_of(AggregateIndex("text", where=Q(number__gt=5)))
    assert counted.groups(document(number=5)) == ()
    assert len(counted.groups(document(number=6))) == 1


def test_a_value_in_a_condition_that_no_column_holds_names_its_field():
    with pytest.raises(InvalidValueError) as caught:
        layout_of(Index("text", where=Q(number__gt=5))).keys(document(number="x"), PK)
    assert caught.value.field == "number"


def test_included_fields_are_as_they_are_stored():
    layout = layout_of(Index("text", include=("span", "homes")))
    assert layout.included(document()) == {"span": 7, "homes": []}
    assert layout_of(Index("text")).included(document()) is None


def test_groups_are_prefixes_of_counters():
    layout = layout_of(AggregateIndex("text", "several", sums=("number", "span"), name="x"))
    assert layout.prefix == counter_prefix("t", "x", 1)
    stored = document(several=[2, 1, 2])
    groups = layout.groups(stored)
    assert [decode_key(group) for group in groups] == [
        ("__kvmodels__", "counter", "t", "x", 1, "a", 1),
        ("__kvmodels__", "counter", "t", "x", 1, "a", 2),
    ]
    assert not layout.has_entries
    assert layout.sums_of(stored) == (5, 7)
    assert layout.sums_of(document(number=None)) == (None, 7)
    key = counter_key(groups[0], "sum:number")
    assert decode_key(key)[-1] == "sum:number"
    assert layout.columns_in(key) == ("a", 1)
    assert counted_by(decode_key(key)) == ("t", "x", 1)
    assert layout.groups(document(several=[])) == ()
    assert [decode_key(group)[5:] for group in layout.groups(document(several=None, text=None))] == [(b"", b"")]


def test_one_group_of_all_records_is_the_prefix_itself():
    layout = layout_of(AggregateIndex(name="x"))
    assert layout.groups(document()) == (layout.prefix,)
    assert layout.columns_in(counter_key(layout.prefix, "count")) == ()


def test_a_column_without_a_path_is_the_field_of_its_name():
    codec = column_codec(str)
    assert codec is not None
    layout = EntryLayout("t", IndexDefinition("x", (Column("text", codec),)), 1)
    assert keys(layout) == [(("a", 1), False)]


# --- from the catalogue alone, and from another release ---------------------------------------------------------------

KINDS = (
    Index("several", "-number", name="several"),
    Index("address.city", include=("span",), name="city"),
    Index("homes.lines", store="record", name="lines"),
    Index("text", where=Q(number__in=[1, 2]) | Q(address__city=None), name="partial"),
    Index("text", key=folded, version=1, name="folded"),
    UniqueConstraint("folded", "number", nulls="equal", name="both"),
    AggregateIndex("homes.city", sums=("number", "span"), where=~Q(text=None), name="totals"),
)


def test_every_definition_is_rebuilt_from_the_catalogue_alone():
    schema = declare(*KINDS)
    stored = {
        "text": "Ab",
        "several": [2, 1],
        "address": {"city": None, "lines": []},
        "homes": [{"city": "x", "lines": ["l"]}],
        "$kv": {"c": {"folded(text)~1": "ab"}},
    }
    for definition in schema.indexes.values():
        value = stored_index(definition, 3, IndexState.READABLE)
        rebuilt = index_definition(value)
        assert (rebuilt.signature(), rebuilt.hash()) == (definition.signature(), definition.hash())
        one, other = index_layout("t", definition, 3), index_layout("t", rebuilt, 3)
        assert one.prefix == other.prefix
        record = StoredRecord(PK, document(**stored), b"value", 0)
        contents = maintenance_for(one).contents(record, MsgpackCodec())
        assert contents == maintenance_for(other).contents(record, MsgpackCodec())
        assert contents.entries or contents.amounts


def test_a_column_of_an_unknown_type_is_of_a_newer_release():
    value = StoredIndex("x", 1, IndexState.READABLE, "h", {"columns": [["a", "colour", "asc", False]]})
    with pytest.raises(SchemaMismatchError, match="does not know"):
        index_definition(value)


def header_of(schema: ModelSchema) -> StoredCollection:
    return stored_collection(schema)


def live(stored: StoredCollection, schema: ModelSchema) -> LiveCollection:
    return join(schema, Header({"t": stored}), {})


def test_another_release_keeps_every_index_that_it_can_compute():
    stored = stored_collection(declare(*KINDS))
    changed = tuple(
        AggregateIndex("homes.city", name="totals")
        if isinstance(index, AggregateIndex)
        else Index("number", name=index.name, max_fan_out=None)
        if index.name in {"several", "city", "lines", "partial", "both"}
        else index
        for index in KINDS
    )
    known = live(stored, declare(*changed))
    assert (known.refused, known.read_only) == (None, None)
    assert {index.stored.name: index.definition.hash() for index in known.maintained} == {
        index.name: index.hash for index in stored.indexes
    }
    assert set(known.readable) == {"folded"}


def test_the_bound_of_entries_is_that_of_the_class():
    stored = stored_collection(declare(Index("several", name="x")))
    kept = live(stored, declare(Index("several", "number", name="x", max_fan_out=7)))
    assert kept.maintained[0].definition.max_fan_out == 7


def test_a_function_of_another_release_makes_a_process_read_only_until_it_builds():
    stored = stored_collection(declare(Index("text", key=folded, version=1, name="x")))
    for index in (Index("text", key=folded, version=2, name="x"), Index("text", name="x")):
        known = live(stored, declare(index))
        assert known.refused is None
        assert known.maintained == ()
        assert known.read_only is not None
        assert "computed by a function of another release" in known.read_only.message
        assert "build_indexes()" in str(known.read_only.hint)
        assert known.read_only.index == "x"


def test_a_function_is_needed_for_conditions_and_sums_too():
    functions = (
        Index("text", key=folded, version=1, name="f"),
        Index("text", key=len, returns=int, version=1, name="n"),
    )
    stored = stored_collection(
        declare(*functions, Index("number", where=Q(f="x"), name="part"), AggregateIndex(sums=("n",), name="sum"))
    )
    without = declare(*(Index("number", name=name) for name in ("f", "n", "part", "sum")))
    known = live(stored, without)
    assert known.maintained == ()
    assert known.read_only is not None
    assert "build_indexes()" in str(known.read_only.hint)


def test_an_older_release_is_told_to_give_way():
    older, newer = (declare(Index("text", key=folded, version=version, name="x")) for version in (1, 2))
    stored = stored_collection(older)
    stored = stored.with_index(stored_index(older.indexes["x"], 1, IndexState.DROPPING))
    stored = stored.with_index(stored_index(newer.indexes["x"], 2, IndexState.READABLE))
    assert live(stored, newer).read_only is None
    refused = live(stored, older).read_only
    assert refused is not None
    assert "does not declare an index with its stored definition" in refused.message


@pytest.mark.parametrize(
    ("index", "fields"),
    [
        (Index("address.city", name="x"), {"address": int | None}),
        (Index("text", include=("span",), name="x"), {"span": None}),
        (Index("several", name="x"), {"several": None}),
        (AggregateIndex(sums=("number",), name="x"), {"number": list[int]}),
    ],
)
def test_a_release_that_lacks_a_field_of_an_index_only_reads(index, fields):
    stored = stored_collection(declare(index))
    present = {name: annotation for name, annotation in fields.items() if annotation is not None}
    schema = declare(Index("text", name="x"), **present)
    if len(present) < len(fields):
        schema = without_fields(schema, *fields)
    known = live(stored, schema)
    assert known.maintained == ()
    assert known.read_only is not None


def without_fields(schema: ModelSchema, *names: str) -> ModelSchema:
    class T(KvModel, collection="t"):
        id: PrimaryKey[int]
        text: str | None

        class Meta:
            indexes = (Index("text", name="x"),)

    assert not set(names) & T.model_fields.keys()
    return schema_of(T)


@pytest.mark.parametrize(
    ("index", "fields"),
    [
        (Index("several", name="x"), {"several": list[str] | None}),
        (Index("text", where=Q(number=1), name="x"), {"number": str | None}),
        (AggregateIndex(sums=("span",), name="x"), {"span": int}),
    ],
)
def test_another_type_of_a_column_refuses_every_use(index, fields):
    known = live(stored_collection(declare(index)), declare(Index("text", name="x"), **fields))
    assert known.refused is not None
    assert known.refused.message == "the type of an indexed column differs from the stored one"


def test_a_function_that_returns_another_type_under_the_same_version_refuses_every_use():
    stored = stored_collection(declare(Index("text", key=folded, version=1, name="x")))
    known = live(stored, declare(Index("text", key=len, returns=int, version=1, name="x")))
    assert known.refused is not None
    assert (known.refused.stored, known.refused.declared) == ({"x": "str"}, {"x": "int"})


def test_a_fold_that_is_added_or_removed_leaves_the_plain_index_as_it_was():
    stored = stored_collection(declare(Index("text", "number", name="x")))
    with_fold = declare(Index("text", "number", name="x"), Index("text", key=folded, version=1, name="y"))
    assert live(stored, with_fold).read_only is None


def test_the_prefixes_of_entries_are_reserved_and_counters_are_the_library_s_own():
    header = Header({"t": stored_collection(declare(*KINDS))})
    assert set(header.prefixes()) == {"t", *(f"t_by_{index.name}" for index in KINDS[:-1])}


def test_a_copy_of_a_store_lists_what_is_complete():
    stored = stored_collection(declare(*KINDS))
    for name in ("city", "totals"):
        unfinished = next(index for index in stored.indexes if index.name == name)
        stored = stored.with_index(StoredIndex(name, 1, IndexState.WRITE_ONLY, unfinished.hash, unfinished.signature))
    header, dropped = Header({"t": stored}).without_unfinished()
    assert dropped == {"t_by_city"}
    assert {index.name for index in header.collections["t"].indexes} == {ix.name for ix in KINDS} - {"city", "totals"}
