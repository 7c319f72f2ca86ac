"""An index of vectors: values, refusals, reads of a query, transactions, builds, other writers, and descriptions."""

from __future__ import annotations

import copy
import pickle
from array import array
from random import Random
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from kvmodels import (
    AsyncDatabase,
    Database,
    Field,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    NoUsableIndexError,
    PrimaryKey,
    UnsupportedError,
    Vector,
    VectorIndex,
)
from kvmodels.cli.model_source import model_source
from kvmodels.schema.kinds import vector as definition
from tests.query.engines import watched
from tests.vectors.queries import DIM, Doc, check_answer, docs, drawn, expected
from tests.vectors.test_vector_queries import filled

THREE = np.array([0.1, -2, 3], dtype=np.float32)
V3: Any = Vector.__class_getitem__(3)
ORIGIN = Vector([1.0, 0.5, 0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    "given",
    [
        [0.1, -2, 3],
        (0.1, -2.0, 3),
        array("d", [0.1, -2, 3]),
        np.array([0.1, -2, 3]),
        np.array([0.1, -2, 3], dtype=np.float32),
    ],
    ids=["list", "tuple", "array", "float64", "float32"],
)
def test_a_vector_takes_lists_and_arrays_and_is_stored_with_32_bits(given: Any):
    found = TypeAdapter(V3).validate_python(given)
    assert found.tobytes() == THREE.tobytes()
    assert np.asarray(found).tolist() == found.tolist() == list(found)
    assert np.asarray(found, dtype=np.float64).dtype == np.float64
    assert TypeAdapter(V3).validate_json(TypeAdapter(V3).dump_json(found)) == found
    assert pickle.loads(pickle.dumps(found)) == copy.deepcopy(found) == found
    assert hash(Vector([0.0])) == hash(Vector([-0.0]))
    assert Vector([0.0]) == Vector([-0.0])


@pytest.mark.parametrize(
    "given",
    ["abc", b"\0\0\0\0", {1.0}, 5, [], ["a"], [[1.0]], np.ones((2, 2)), [float("nan")], [float("inf")], [1e39], None],
    ids=repr,
)
def test_what_is_no_list_of_finite_numbers_is_no_vector(given: Any):
    with pytest.raises(InvalidValueError):
        Vector(given)
    with pytest.raises(ValidationError):
        TypeAdapter(Vector).validate_python(given)


NUMBERS = [[10**400, 1], (0.5, -(10**400)), [1e39], [float("inf")]]


@pytest.mark.parametrize("given", NUMBERS, ids=["int", "tuple", "float", "infinite"])
def test_a_number_that_float32_does_not_hold_is_too_large(given: Any):
    with pytest.raises(InvalidValueError, match="NaN, infinite or too large"):
        Vector(given)
    with pytest.raises(InvalidValueError, match="a list of numbers"):
        Vector(["1", *given])


def test_a_field_takes_vectors_of_its_length_alone():
    with pytest.raises(ValidationError, match="3 numbers was expected, not 2"):
        TypeAdapter(V3).validate_python([1, 2])
    for length in (0, True, "3", 100_000):
        with pytest.raises(InvalidArgumentError):
            Vector.__class_getitem__(length)  # type: ignore[arg-type]
    schema = TypeAdapter(V3).json_schema()
    assert schema == {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 3}


def model_with(index: VectorIndex, annotation: Any = V3) -> Any:
    class Item(KvModel, collection="items"):
        id: PrimaryKey[int]
        look: annotation
        note: str = ""

        class Meta:
            indexes: ClassVar = (index,)

    Item.model_rebuild(_types_namespace={"annotation": annotation})
    return Database("memory://", models=[Item])


@pytest.mark.parametrize(
    ("index", "annotation"),
    [
        (lambda: VectorIndex("look", "note"), V3),
        (lambda: VectorIndex("look", dim=0), V3),
        (lambda: VectorIndex("look", metric="angle"), V3),  # type: ignore[arg-type]
        (lambda: VectorIndex("look", store="int4"), V3),  # type: ignore[arg-type]
        (lambda: VectorIndex("-look"), V3),
        (lambda: VectorIndex("look", dim=4), V3),
        (lambda: VectorIndex("look"), Vector),
        (lambda: VectorIndex("look"), list[V3]),
        (lambda: VectorIndex("look"), list[float]),
        (lambda: VectorIndex("loook"), V3),
    ],
)
def test_a_declaration_that_fits_no_vector_is_refused(index: Any, annotation: Any):
    with pytest.raises(ModelDefinitionError):
        model_with(index(), annotation)


def test_without_numpy_the_pip_line_is_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(definition, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"pip install 'kvmodels\[vector\]'"):
        model_with(VectorIndex("look"))


@pytest.mark.parametrize(
    "vector", [[1.0], [0.0] * DIM, [float("nan")] * DIM, "abc", None], ids=["short", "zero", "nan", "text", "None"]
)
def test_a_query_by_no_vector_of_the_index_is_refused(vector: Any):
    with Database("memory://", models=[Doc]) as db:
        with pytest.raises(InvalidValueError) as refused:
            db[Doc].similar("cosine_int8", vector)
        assert (refused.value.model, refused.value.field) == ("Doc", "embedding")


def test_zeros_and_numbers_beyond_float16_are_refused_before_anything_is_written():
    with Database("memory://", models=[Doc]) as db:
        for vector in ([0.0] * DIM, [70_000.0] * DIM):
            with pytest.raises(InvalidValueError) as refused:
                db[Doc].create(id=1, embedding=Vector(vector))
            assert refused.value.field == "embedding"
        assert db[Doc].count() == 0
        assert db.check().ok


def test_a_slice_is_needed_and_there_are_no_pages():
    with Database("memory://", models=[Doc]) as db:
        query = db[Doc].similar("l2_int8", ORIGIN)
        for refused in (query.to_list, lambda: list(query), query[:1_001].to_list, lambda: query[1_000], query.page):
            with pytest.raises(InvalidArgumentError):
                refused()
        assert query[:1_000].to_list() == []
        assert query.first() is None
        with pytest.raises(NoUsableIndexError, match=r"filter\(lang=...\)"):
            db[Doc].similar("of_lang", ORIGIN)[:1].to_list()
        with pytest.raises(NoUsableIndexError, match="Give the name of an index, such as 'cosine_float32'"):
            db[Doc].similar("embedding", ORIGIN)


def read_by(query: Any) -> tuple[int, int, int]:
    """Return the entries, the records and the results of a query."""
    taken = query.explain(analyze=True).analysis
    return taken.rows, taken.records, taken.results


def test_a_query_reads_each_entry_and_only_the_records_that_the_bounds_leave():
    with Database("memory://", models=[Doc]) as db:
        records = filled(db, Random(1), 1_500)
        vectors = sum(one.embedding is not None for one in records)
        rows, read, results = read_by(db[Doc].similar("l2_float32", ORIGIN)[:5])
        assert rows == vectors
        assert 5 == results <= read <= 10
        few = [one for one in records if one.rank < 15]
        rows, read, results = read_by(db[Doc].filter(rank__lt=15).similar("l2_float32", ORIGIN)[:5])
        assert rows == len(few) + sum(one.embedding is not None for one in few)
        assert results == 5
        # More than a quarter of the entries of the group are read in one range.
        query = db[Doc].filter(rank__lt=1_400).similar("l2_float32", ORIGIN)[:5]
        many = sum(one.rank < 1_400 for one in records)
        assert many > 1_000
        assert read_by(query)[0] <= many + vectors


@pytest.mark.parametrize("snapshots", [True, False])
def test_records_that_are_not_written_are_found_beside_writers(snapshots: bool):
    chance = Random(5)
    db, engine = watched([Doc], snapshots=snapshots)
    records = filled(db, chance, 60)
    elsewhere = watched([Doc], engine=engine.inner)[0][Doc]

    def write() -> None:
        key = chance.randrange(1_000, 1_010)
        if chance.random() < 0.3:
            elsewhere.filter(id=key).delete()
            return
        (made,) = docs(chance, 1)
        elsewhere.bulk_create([made.model_copy(update={"id": key})], on_conflict="update")

    for _ in range(60):
        asked = drawn(chance, records)
        query = db[Doc].similar(asked.by, asked.origin)
        if asked.condition is not None:
            query = query.filter(asked.condition)
        engine.before_read = write
        hits = [hit for hit in query[:40] if hit.record.id < 1_000]
        check_answer(asked, hits, expected(asked, records)[: len(hits)], records)


def test_a_record_that_moves_between_its_entry_and_itself_is_not_out_of_order():
    for number in range(1, 5):
        db, engine = watched([Doc], snapshots=False)
        db[Doc].bulk_create([Doc(id=key, embedding=Vector([key, *[0] * (DIM - 1)])) for key in range(1, 6)])
        elsewhere = watched([Doc], engine=engine.inner)[0][Doc]
        reads = iter(range(1, 10))

        def move(number: int = number, elsewhere: Any = elsewhere, engine: Any = engine, reads: Any = reads) -> None:
            if next(reads) == number:
                elsewhere.patch(5, embedding=Vector([0.5, *[0] * (DIM - 1)]))
            else:
                engine.before_read = move

        engine.before_read = move
        hits = db[Doc].similar("l2_int8", [1e-3, *[0] * (DIM - 1)])[:5].to_list()
        assert [hit.distance for hit in hits] == sorted(hit.distance for hit in hits)
        assert [hit.record.id for hit in hits if hit.record.id != 5] == [1, 2, 3, 4]


def test_a_transaction_finds_its_own_writes():
    with Database("memory://", models=[Doc]) as db:
        filled(db, Random(2), 40)
        with db.transaction() as tx:
            tx[Doc].create(id=500, embedding=ORIGIN, rank=3)
            first = tx[Doc].filter(rank=3).similar("cosine_int8", ORIGIN)[0]
            assert (first.record.id, first.distance) == (500, 0.0)
            tx[Doc].patch(500, embedding=None)
            assert all(hit.record.id != 500 for hit in tx[Doc].similar("cosine_int8", ORIGIN)[:40])
        assert db.check().ok


async def test_the_asynchronous_facade_has_it_too():
    async with AsyncDatabase("memory://", models=[Doc]) as db:
        await db[Doc].create(id=1, embedding=ORIGIN)
        assert [hit.record.id async for hit in db[Doc].similar("dot_float16", ORIGIN)[:3]] == [1]
        assert await db[Doc].filter(rank=0).similar("dot_float16", ORIGIN).count() == 1


class Plain(KvModel, collection="docs"):
    """The records before they have an index."""

    id: PrimaryKey[int]
    rank: Indexed[int] = Field(default=0)
    embedding: Vector | None = None


class Later(Plain, collection="docs"):
    """The records with an index."""

    class Meta:
        indexes: ClassVar = (VectorIndex("embedding", dim=2, store="int8", name="by_look"),)


def test_a_build_lists_vectors_that_the_index_does_not_take(tmp_path: Any):
    with Database(tmp_path / "docs.db", models=[Plain]) as db:
        vectors = [Vector([1, 2]), Vector([1, 2, 3]), Vector([0, 0]), None]
        db[Plain].bulk_create([Plain(id=key, embedding=one) for key, one in enumerate(vectors)])
    with Database(tmp_path / "docs.db", models=[Later]) as db:
        db.build_indexes()
        listed = [(one.key, one.kind) for one in db.violations(Later, "by_look")]
        assert listed == [(1, "not_encodable"), (2, "not_encodable")]
        db[Later].patch(1, embedding=Vector([2, 1]))
        db[Later].patch(2, embedding=None)
        db.build_indexes()
        assert [hit.record.id for hit in db[Later].similar("by_look", [1, 2])[:5]] == [0, 1]
        assert db.check().ok


def test_a_description_declares_the_index_again():
    with Database("memory://", models=[Later]) as db:
        db[Later].create(id=1, embedding=Vector([1, 2]))
        text = model_source(db.collections(), db.indexes())
        assert "embedding: Vector | None" in text
        assert "VectorIndex('embedding', name='by_look', dim=2, metric='cosine', store='int8')" in text
