"""Entries are split into part and primary key alike, whether or not the entry before has the same part."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from kvmodels import KvModel, PrimaryKey, SearchIndex
from kvmodels.catalog.keyspace import index_layout
from kvmodels.core.keys import encode_key
from kvmodels.flows.execution.lists import postings_in
from kvmodels.schema.compile.schema import schema_of


class Text(KvModel, collection="texts"):
    id: PrimaryKey[int]
    text: str

    class Meta:
        indexes = (SearchIndex("text", name="words"),)


class Live(NamedTuple):
    layout: Any


class Entry(NamedTuple):
    key: bytes
    value: bytes


def test_a_part_that_another_one_continues_is_not_taken_for_it():
    layout = index_layout("texts", schema_of(Text).indexes["words"], 1)
    chance = Random(1)
    parts: list[Any] = ["a", "a\0", "a\0b", "a\0\0", "", "\0", "b", b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0\xff"]
    keys: list[Any] = [-(2**70), -1, 0, 255, 2**70, "", "\0", b"", b"\xff", b"\0\xff", False, True, 0.5]
    pairs = [(encode_key((part,)), encode_key((key,))) for part in parts for key in keys]
    for _ in range(20):
        some = sorted(chance.sample(pairs, 60))
        rows: Any = [Entry(layout.prefix + part + pk, b"v") for part, pk in some]
        found = list(postings_in(Live(layout), layout.prefix, rows))  # type: ignore[arg-type]
        assert [(one.part, one.pk) for one in found] == some


def test_a_row_without_a_primary_key_is_no_entry_of_the_part_before():
    layout = index_layout("texts", schema_of(Text).indexes["words"], 1)
    part, pk = encode_key(("a",)), encode_key((7,))
    rows: Any = [Entry(layout.prefix + part + pk, b"v"), Entry(layout.prefix + part, b"v")]
    found = list(postings_in(Live(layout), layout.prefix, rows))  # type: ignore[arg-type]
    assert [one.pk for one in found] == [pk, b""]
