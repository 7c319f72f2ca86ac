"""A write beyond a limit is refused before anything is written, by an error that names limit and index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels import Database, Field, KvModel, Limits, PrimaryKey
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Delete, Mutation, Set
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import LimitExceededError
from kvmodels.indexing.budget import check_budget
from kvmodels.indexing.simple import fits
from kvmodels.schema.declare.declarations import AggregateIndex, Index, UniqueConstraint
from kvmodels.schema.declare.markers import MultiIndexed
from tests.passing_engine import RecordingEngine

checks = st.builds(Check, st.binary(max_size=6), st.none())
mutations = st.one_of(
    st.builds(Set, st.binary(max_size=6), st.binary(max_size=12), st.just(4)),
    st.builds(Delete, st.binary(max_size=6)),
    st.builds(Arithmetic, st.just("sum"), st.binary(max_size=6), st.just(1)),
)


@given(
    st.lists(checks, max_size=4).map(tuple),
    st.lists(mutations, max_size=3).map(tuple),
    st.fixed_dictionaries(
        {
            "max_key_bytes": st.integers(0, 20),
            "max_value_bytes": st.integers(0, 20),
            "max_operation_bytes": st.integers(0, 40),
            "max_operation_key_bytes": st.integers(0, 40),
            "max_checks": st.integers(0, 4),
            "max_mutations": st.integers(0, 3),
        }
    ),
)
def test_what_fits_is_under_every_limit(
    checks: tuple[Check, ...], mutations: tuple[Mutation, ...], numbers: dict[str, Any]
):
    limits = replace(Limits.EMBEDDED, **numbers)
    write = AtomicWrite(checks, mutations)
    if fits(write, limits):
        check_budget(write, limits)


def test_a_small_write_fits_up_to_the_lowest_limit():
    limits = replace(Limits.EMBEDDED, max_key_bytes=20)
    header, row = Check(b"h", b"v"), Check(b"12345", b"v")
    assert fits(AtomicWrite((header, row), (Set(b"12345", b"1234", 4),)), limits)
    assert not fits(AtomicWrite((header, row), (Set(b"12345", b"12345", 4),)), limits)
    assert fits(AtomicWrite((), (Arithmetic("sum", b"123456", 1),)), limits)
    assert not fits(AtomicWrite((), (Arithmetic("sum", b"1234567", 1),)), limits)


def letters(text: str) -> str:
    return text * 2


class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    words: MultiIndexed[list[str]] = Field(default_factory=list)
    owners: list[str] = Field(default_factory=list)
    groups: list[str] = Field(default_factory=list)
    copies: list[int] = Field(default_factory=list)
    text: str = ""
    slug: str = ""

    class Meta:
        indexes: ClassVar = (
            UniqueConstraint("owners"),
            AggregateIndex("groups", name="per_group"),
            Index("copies", store="record", name="copies"),
            Index("text", key=letters, version=1, name="twice"),
            UniqueConstraint("id", "slug", include=("text",), name="covering"),
        )


def many(number: int, size: int = 0) -> list[str]:
    return [f"{n}{'x' * size}" for n in range(number)]


TOO_LARGE: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "entries": ({"words": many(1_000)}, "max_mutations", "pages.words"),
    "slots": ({"owners": many(99)}, "max_checks", "pages.owners"),
    "counters": ({"groups": many(1_000)}, "max_mutations", "pages.per_group"),
    "keys": ({"groups": many(950, 40)}, "max_operation_key_bytes", "pages.per_group"),
    "elements": ({"words": many(1_001)}, "max_fan_out", "pages.words"),
    "slot elements": ({"owners": many(1_001)}, "max_fan_out", "pages.owners"),
    "groups": ({"groups": many(1_001)}, "max_fan_out", "pages.per_group"),
    "slot": ({"slug": "s" * 3_000}, "max_key_bytes", "pages.covering"),
    "bytes": ({"copies": list(range(20)), "words": many(40, 900)}, "max_operation_bytes", "pages.words"),
    "computed": ({"text": "x" * 1_100}, "max_key_bytes", "pages.twice"),
    "value": ({"words": many(70, 950)}, "max_value_bytes", None),
    "group": ({"groups": ["x" * 2_100]}, "max_key_bytes", "pages.per_group"),
}
"""Writes with the limit that each exceeds, and the index that causes it."""

WRITES: dict[str, Callable[[Any, dict[str, Any]], object]] = {
    "create": lambda pages, values: pages.create(id=2, **values),
    "patch": lambda pages, values: pages.patch(1, **values),
    "bulk": lambda pages, values: pages.bulk_create([Page(id=2), Page(id=3, **values)]),
    "ignore": lambda pages, values: pages.bulk_create([Page(id=2), Page(id=3, **values)], on_conflict="ignore"),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", TOO_LARGE)
def test_a_record_over_a_limit_is_refused_before_anything_is_written(kind, write):
    values, limit, index = TOO_LARGE[kind]
    engine = RecordingEngine(MemoryEngine(Limits.DENO))
    db = Database.from_engine(engine, DatabaseCore([Page]))
    db[Page].create(id=1)
    engine.writes.clear()
    with pytest.raises(LimitExceededError) as caught:
        WRITES[write](db[Page], values)
    assert (caught.value.limit, caught.value.index) == (limit, index)
    assert caught.value.size > caught.value.maximum
    assert len(str(caught.value)) < 600
    assert engine.writes == []
    db[Page].patch(1, text="short")
    assert db.check().findings == ()
