"""The branch of the compiler for simple indexes makes the operation that it makes in full of the same change."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from kvmodels import AggregateIndex, Database, Field, Index, Indexed, KvModel, PrimaryKey, Q, Unique, UniqueConstraint
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.operations import AtomicWrite, Row
from kvmodels.errors import InvalidValueError, OperationTooLargeError
from kvmodels.indexing.compiler import compile_in_full, compile_write
from kvmodels.indexing.entries import NeedRows, RecordChange, StaleRow, Violation
from kvmodels.indexing.simple import RecordWriter, record_writer
from kvmodels.schema.declare.declarations import DeclaredIndex


class Member(KvModel, collection="members"):
    """One column of each kind, None included."""

    id: PrimaryKey[int]
    email: Unique[str]
    nick: Unique[str | None] = Field(default=None)
    city: Indexed[str]
    born: Indexed[datetime | None] = Field(default=None)
    score: int = 0

    class Meta:
        indexes = (Index("city", "-score"), UniqueConstraint("city", "nick", nulls="skip"))


class Badge(KvModel, collection="badges"):
    """A primary key whose parts are not what the document stores."""

    day: PrimaryKey[datetime]
    token: PrimaryKey[uuid.UUID]
    label: Unique[str]


class Setting(KvModel, collection="settings"):
    """No index at all."""

    name: PrimaryKey[str]
    value: int = 0


class Place(NamedTuple):
    """A collection, and what compiles its writes in both ways."""

    db: Database
    live: Any
    writes: RecordWriter


def place(model: type[KvModel]) -> Place:
    db = Database("memory://", models=[model])
    view = db._core.context.view
    assert view is not None
    (live,) = view.live.values()
    writes = record_writer(live, view.guard, db._core.context.codec)
    assert writes is not None
    return Place(db, live, writes)


texts = st.sampled_from(["", "a", "b", "A\x00b", "ü", "\U0001f600", "a" * 40])
moments = st.sampled_from([datetime.fromisoformat(text) for text in ("2026-01-01T00:00+02:00", "1999-12-31T00:00Z")])
members = st.builds(
    Member,
    id=st.sampled_from([0, 1, -5, 300, 2**70]),
    email=texts,
    nick=st.none() | texts,
    city=texts,
    born=st.none() | moments,
    score=st.integers(-3, 3),
)
badges = st.builds(Badge, day=moments, token=st.just(uuid.UUID(int=7)), label=texts)
settings_ = st.builds(Setting, name=texts, value=st.integers())


def compiled(at: Place, changes: list[RecordChange], rows: dict[bytes, Row | None] | None) -> AtomicWrite | NeedRows:
    context = at.db._core.context
    assert context.view is not None
    made = compile_in_full(
        changes,
        rows,
        header=context.view.guard,
        codec=context.codec,
        now_ms=0,
        max_key_bytes=context.limits.max_key_bytes,
    )
    assert not isinstance(made, Violation | StaleRow)
    return made


def both(
    at: Place, old: Any, new: Any, rows: dict[bytes, Row | None] | None = None
) -> tuple[AtomicWrite | NeedRows, AtomicWrite | NeedRows | None]:
    """The operations for a change, compiled in full and by the writer; None for no record."""
    codec, live = at.db._core.context.codec, at.live
    pk = live.layout.pack(live.schema.primary_key_of(old if new is None else new))
    row, old_document, document, value = None, None, None, (b"", 0)
    if old is not None:
        old_document = live.schema.prepare(old).document
        row = Row(live.layout.key(pk), *codec.encode_document(old_document), b"\0" * 9 + b"\1", None)
    if new is not None:
        document = live.schema.prepare(new).document
        value = codec.encode_document(document)
    changes = [RecordChange(live, pk, row, old_document, document, *value)]
    return compiled(at, changes, rows), at.writes.compiled(changes, rows)


def taken_for_free(at: Place, changes: list[RecordChange]) -> AtomicWrite | None:
    """The operation of the writer that takes every slot for free."""
    made = at.writes.compiled(changes, None)
    assert not isinstance(made, NeedRows)
    return made


def replaced(at: Place, pk: bytes, before: Any, after: Any) -> AtomicWrite | None:
    """The operation of the writer that replaces a document."""
    row = Row(at.live.layout.key(pk), b"", 4, b"\0" * 10, None)
    return taken_for_free(at, [RecordChange(at.live, pk, row, before, after, b"", 4)])


def removed(at: Place, pk: bytes, before: Any) -> AtomicWrite | None:
    """The operation of the writer that removes a document."""
    return replaced(at, pk, before, None)


def slots(at: Place, document: Any, pk: bytes) -> list[bytes]:
    """The slots that a document claims."""
    found = taken_for_free(at, [RecordChange(at.live, pk, None, None, document, b"", 4)])
    assert found is not None
    return [check.key for check in found.checks[2:]]


@pytest.mark.fast_kinds
@pytest.mark.parametrize(("model", "objects"), [(Member, members), (Badge, badges), (Setting, settings_)])
def test_a_change_compiles_to_the_same_operation(model: type[KvModel], objects: st.SearchStrategy[Any]):
    at = place(model)

    @seed(20261121)
    @given(objects, objects)
    def compare(old: Any, new: Any) -> None:
        names = [column.field for column in at.live.schema.primary_key]
        new = new.model_copy(update={name: getattr(old, name) for name in names})
        for full, short in (both(at, None, new), both(at, old, new), both(at, old, None)):
            assert short == full
        for full, short in (both(at, None, new, {}), both(at, old, new, {}), both(at, old, None, {})):
            assert short == full  # which asks for the same slots

    compare()


@pytest.mark.fast_kinds
@seed(20261121)
@given(st.lists(st.tuples(st.none() | members, st.none() | members), max_size=6), st.booleans())
def test_the_changes_of_many_records_compile_to_the_same_operation(pairs: list[tuple[Any, Any]], read: bool):
    at = place(Member)
    context, live = at.db._core.context, at.live
    assert context.view is not None
    options: dict[str, Any] = {
        "header": context.view.guard,
        "codec": context.codec,
        "now_ms": 0,
        "max_key_bytes": 2_048,
    }
    changes, rows = [], dict[bytes, Row | None]() if read else None
    for number, (old, new) in enumerate(pairs):
        pk, row, old_document, document, value = live.layout.pack((number,)), None, None, None, (b"", 0)
        if old is not None:
            old_document = live.schema.prepare(old.model_copy(update={"id": number})).document
            row = Row(live.layout.key(pk), *context.codec.encode_document(old_document), b"\0" * 9 + b"\1", None)
        if new is not None:
            document = live.schema.prepare(new.model_copy(update={"id": number})).document
            value = context.codec.encode_document(document)
            if rows is not None:
                rows.update(dict.fromkeys(slots(at, document, pk)))
        changes.append(RecordChange(live, pk, row, old_document, document, *value))
    short, full = compile_write(changes, rows, **options), compile_in_full(changes, rows, **options)
    assert type(short) is type(full)
    if isinstance(short, AtomicWrite) and isinstance(full, AtomicWrite):
        assert sorted(short.checks) == sorted(full.checks)
        assert sorted(short.mutations) == sorted(full.mutations)


@pytest.mark.fast_kinds
@pytest.mark.parametrize(("model", "objects"), [(Member, members), (Badge, badges), (Setting, settings_)])
def test_inserts_compile_by_columns_to_the_same_operation(model: type[KvModel], objects: st.SearchStrategy[Any]):
    at = place(model)
    context, live = at.db._core.context, at.live
    assert isinstance(context.codec, MsgpackCodec)
    codec = context.codec

    @seed(20261121)
    @given(st.lists(objects, min_size=1, max_size=6))
    def compare(drawn: list[Any]) -> None:
        documents = [live.schema.prepare(one).document for one in drawn]
        pks = [live.layout.pack_document(document) for document in documents]
        assert at.writes.packed_keys(documents) == pks
        values = [context.codec.encode_document(document) for document in documents]
        changes = [
            RecordChange(live, pk, None, None, document, *value)
            for pk, document, value in zip(pks, documents, values, strict=True)
        ]
        expected = taken_for_free(at, changes)
        found = at.writes.compiled_inserts(codec, documents, pks, [value for value, _ in values], 4)
        assert (expected is None) == (found is None)
        if expected is None or found is None:
            return
        assert sorted(found.write.checks) == sorted(expected.checks)
        assert sorted(found.write.mutations) == sorted(expected.mutations)
        assert found.keys == [live.layout.key(pk) for pk in pks]
        assert sorted(found.checked) == sorted(check.key for check in expected.checks)
        assert sorted(found.written) == sorted(mutation[0] for mutation in expected.mutations)

    compare()


@pytest.mark.fast_kinds
def test_what_an_index_or_a_key_cannot_hold_is_not_compiled_by_columns():
    at = place(Member)
    codec = at.db._core.context.codec
    assert isinstance(codec, MsgpackCodec)
    document = at.live.schema.prepare(Member(id=1, email="a", city="b")).document
    for wrong in ({"city": 7}, {"city": "\ud800"}, {"email": None}, {"nick": 7}):
        documents = [document, {**document, **wrong, "id": 2}]
        assert at.writes.compiled_inserts(codec, documents, [b"1", b"2"], [b"", b""], 4) is None
    for key in ("1", None, True, 2.0):
        assert at.writes.packed_keys([document, {**document, "id": key}]) is None


@pytest.mark.fast_kinds
def test_the_document_of_another_record_is_left_to_the_compiler():
    at = place(Member)
    document = at.live.schema.prepare(Member(id=1, email="a", city="b")).document
    other = at.live.layout.pack((2,))
    assert removed(at, other, document) is None
    assert removed(at, other, {**document, "id": 2}) is not None


@pytest.mark.fast_kinds
def test_only_equal_texts_and_integers_are_taken_for_unchanged():
    at = place(Member)
    pk = at.live.layout.pack((1,))
    document = at.live.schema.prepare(Member(id=1, email="a", city="b", score=1)).document
    for same in ({"score": True}, {"score": 1.0}, {"score": float("nan")}, {"score": 1 << 3000}, {"nick": 7}):
        wrong = {**document, **same}
        assert replaced(at, pk, wrong, {**wrong, "email": "c"}) is None
        assert replaced(at, pk, document, wrong) is None


@pytest.mark.fast_kinds
def test_what_an_index_cannot_hold_is_left_to_the_compiler():
    at = place(Member)
    pk = at.live.layout.pack((1,))
    document = at.live.schema.prepare(Member(id=1, email="a", city="b")).document
    for wrong in ({"city": 7}, {"city": "\ud800"}, {"email": None}, {"id": "1"}):
        assert removed(at, pk, {**document, **wrong}) is None
    del document["city"]
    assert removed(at, pk, document) is None


def shop(index: DeclaredIndex) -> type[KvModel]:
    class Shop(KvModel, collection="shops"):
        id: PrimaryKey[int]
        name: Unique[str]
        city: str | None = None
        score: int = 0
        tags: list[str | None] = []
        weight: float = 0.0

        class Meta:
            indexes = (index,)

    return Shop


@pytest.mark.fast_kinds
@pytest.mark.parametrize(
    "index",
    [
        Index("city", where=Q(score=1)),
        Index("city", include=("score", "tags", "weight")),
        Index("weight", nulls="skip", include=("score",)),
        Index("city", store="record"),
        Index("tags", "-score"),
        AggregateIndex("city", sums=("score",)),
        AggregateIndex("tags", where=Q(score__gt=0)),
        Index("city", name="folded", key=str.casefold),
    ],
    ids=repr,
)
def test_an_index_that_is_not_plain_compiles_to_the_same_operation(index: DeclaredIndex):
    model = shop(index)
    at = place(model)
    codec = at.db._core.context.codec
    assert isinstance(codec, MsgpackCodec)
    drawn = st.builds(
        model,
        id=st.just(1),
        name=st.sampled_from(["a", "b"]),
        city=st.none() | st.sampled_from(["", "a", "A"]),
        score=st.sampled_from([0, 1, -1, 2**40, 2**70]),
        tags=st.lists(st.sampled_from(["a", "b"]), max_size=3),
        weight=st.sampled_from([0.0, -0.0, 1.5]),
    )

    @seed(20261128)
    @given(drawn, drawn)
    def compare(old: Any, new: Any) -> None:
        for pair in ((None, new), (old, new), (old, None)):
            try:
                full, short = both(at, *pair)
            except InvalidValueError:
                continue  # the compiler in full refuses it
            if short is None:
                assert 2**70 in {one.score for one in pair if one is not None}  # no column of integers holds it
                continue
            assert isinstance(full, AtomicWrite)
            assert isinstance(short, AtomicWrite)
            assert sorted(short.checks) == sorted(full.checks)
            assert sorted(short.mutations, key=repr) == sorted(full.mutations, key=repr)
        document = at.live.schema.prepare(new).document
        pk, (value, encoding) = at.live.layout.pack((1,)), codec.encode_document(document)
        alone = taken_for_free(at, [RecordChange(at.live, pk, None, None, document, value, encoding)])
        inserts = at.writes.compiled_inserts(codec, [document], [pk], [value], encoding)
        assert (alone is None) == (inserts is None)
        if alone is not None and inserts is not None:
            assert sorted(inserts.write.mutations, key=repr) == sorted(alone.mutations, key=repr)
            assert sorted(inserts.written) == sorted(mutation.key for mutation in alone.mutations)

    compare()


@pytest.mark.fast_kinds
@pytest.mark.parametrize(("index", "patched"), [(Index("tags"), "city"), (AggregateIndex("city"), "score")], ids=repr)
def test_a_change_of_other_fields_asks_no_index_that_is_not_plain(index: DeclaredIndex, patched: str):
    at = place(shop(index))
    (other,) = at.writes._others
    old: dict[str, Any] = {"id": 1, "name": "a", "city": "x", "score": 1, "tags": ["a"], "weight": 0.0}
    assert other.is_same(old, {**old, patched: old[patched] * 2, "tags": ["a"]})
    assert not other.is_same(old, {**old, "tags": ["b"], "city": "y"})


def test_more_values_than_an_index_takes_are_left_to_the_compiler():
    model = shop(Index("tags", max_fan_out=2))
    db = Database("memory://", models=[model])
    with pytest.raises(OperationTooLargeError):
        db[model].create(id=1, name="a", tags=["a", "b", "c"])
    db[model].create(id=1, name="a", tags=["a", "b", "b"])


@pytest.mark.parametrize(
    "index",
    [
        UniqueConstraint("city", where=Q(score=1)),
        UniqueConstraint("city", include=("score",)),
        UniqueConstraint("tags"),
        UniqueConstraint("city", name="folded", key=str.casefold),
    ],
    ids=repr,
)
def test_unique_slots_that_are_not_plain_are_left_to_the_compiler(index: DeclaredIndex):
    db = Database("memory://", models=[shop(index)])
    view = db._core.context.view
    assert view is not None
    assert record_writer(view.live["shops"], view.guard, db._core.context.codec) is None
