"""An index of vectors with other options is another generation, built beside the present one, which answers."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from json import dumps
from typing import Any, ClassVar

import pytest

from kvmodels import (
    Database,
    Field,
    IndexNotReadyError,
    KvModel,
    PrimaryKey,
    Q,
    SchemaMismatchError,
    Vector,
    VectorIndex,
)
from tests.oracle import audit, read_store, spec_of
from tests.vectors.queries import exact

VECTORS = ([1, 0], [3, 1], [0, 2], [-1, 2], None, [3, 1], [1, 1])
ORIGIN = Vector([2, 1])


class Fields(KvModel, abstract=True):
    id: PrimaryKey[int]
    topic: str = Field(default="a")
    look: Vector | None = None


def release(**options: Any) -> Any:
    """A release with these options of the index."""
    declared = VectorIndex("look", name="near", **{"dim": 2, **options})

    class Text(Fields, collection="texts"):
        class Meta:
            indexes: ClassVar = (declared,)

    return Text


FIRST = release()


def filled(url: str) -> Database:
    """The first release, with records."""
    db = Database(url, models=[FIRST])
    db[FIRST].bulk_create(
        [
            FIRST(id=key, topic="ab"[key % 2], look=None if one is None else Vector(one))
            for key, one in enumerate(VECTORS)
        ]
    )
    return db


def generations(db: Database) -> list[int]:
    """The generations of the index in the store."""
    return sorted(one.generation or 0 for one in db.indexes() if one.index.name == "near")


def expected(metric: str, chosen: Any = lambda key: True) -> list[tuple[float, int]]:
    """The results by whole numbers, whose sums are exact."""
    return sorted(
        (exact(metric, ORIGIN, one), key) for key, one in enumerate(VECTORS) if one is not None and chosen(key)
    )


def found(query: Any) -> list[tuple[float, int]]:
    return [(hit.distance, hit.record.id) for hit in query[:10]]


@pytest.mark.parametrize(
    "options", [{"metric": "l2"}, {"metric": "dot"}, {"store": "int8"}, {"store": "float16"}], ids=str
)
def test_another_metric_or_store_is_built_beside_the_index_that_answers(options: dict[str, str], tmp_path: Any):
    with filled(str(tmp_path / "texts.db")) as old:
        later = release(**options)
        metric = options.get("metric", "cosine")
        with Database(tmp_path / "texts.db", models=[later]) as db:
            assert [step.rule for step in db.plan().steps] == ["index_replaced"]
            assert generations(old) == [1]
            with pytest.raises(IndexNotReadyError):
                found(db[later].similar("near", ORIGIN))
            assert found(old[FIRST].similar("near", ORIGIN)) == expected("cosine")
            assert db.apply().complete
            assert db.plan().is_current
            assert generations(db) == [2]
            assert found(db[later].similar("near", ORIGIN)) == expected(metric)
            assert audit(read_store(db.kv), [spec_of(later)]) == []
            assert db.check().ok


@pytest.mark.parametrize(
    ("options", "condition", "chosen"),
    [
        ({"group": "topic"}, Q(topic="b"), lambda key: key % 2 == 1),
        ({"where": Q(id__lt=4)}, Q(id__lt=4), lambda key: key < 4),
    ],
    ids=["group", "where"],
)
def test_another_group_or_condition_is_built_beside_it_too(
    options: dict[str, Any], condition: Any, chosen: Any, tmp_path: Any
):
    with filled(str(tmp_path / "texts.db")):
        later = release(**options)
        with Database(tmp_path / "texts.db", models=[later]) as db:
            assert [step.rule for step in db.plan().steps] == ["index_replaced"]
            assert db.apply().complete
            assert found(db[later].filter(condition).similar("near", ORIGIN)) == expected("cosine", chosen)
            assert audit(read_store(db.kv), [spec_of(later)]) == []


def test_vectors_of_another_length_keep_the_next_index_pending_until_they_are_changed(tmp_path: Any):
    with filled(str(tmp_path / "texts.db")):
        later = release(dim=3)
        with Database(tmp_path / "texts.db", models=[later]) as db:
            assert not db.apply().complete
            listed = {one.key: one.kind for one in db.violations(later)}
            assert listed == {key: "not_encodable" for key, one in enumerate(VECTORS) if one is not None}
            with pytest.raises(IndexNotReadyError):
                found(db[later].similar("near", [2, 1, 0]))
            assert audit(read_store(db.kv), [spec_of(later)]) == []
            for key in listed:
                one = VECTORS[key]
                assert one is not None
                db[later].patch(key, look=Vector([*one, 0]))
            assert db.apply().complete
            assert not db.violations(later)
            assert found(db[later].similar("near", [2, 1, 0])) == expected("cosine")
            assert audit(read_store(db.kv), [spec_of(later)]) == []
            assert db.check().ok


HEADER = ("__kvmodels__", "header")
NEWER: Mapping[str, dict[str, Any]] = {
    "a metric": {"metric": "hamming"},
    "a store": {"store": "int4"},
    "another option": {"lists": 16},
    "a length that is none": {"dim": "many"},
}


@pytest.mark.parametrize("options", NEWER.values(), ids=NEWER)
def test_an_option_of_a_newer_release_refuses_writes_and_queries_by_vectors_alone(options: dict[str, Any]):
    with filled("memory://") as db:
        value = db.kv.get(HEADER).value
        (index,) = [one for one in value["collections"]["texts"]["indexes"] if one["name"] == "near"]
        index["signature"]["options"].update(options)
        text = dumps(index["signature"], sort_keys=True, separators=(",", ":"))
        index["hash"] = sha256(text.encode()).hexdigest()[:16]
        db.kv.unsafe().set(HEADER, value)
        for write in (
            lambda: db[FIRST].create(id=9),
            lambda: db[FIRST].patch(1, look=None),
            lambda: db[FIRST].remove(1),
            lambda: found(db[FIRST].similar("near", ORIGIN)),
        ):
            with pytest.raises(SchemaMismatchError):
                write()
        assert db[FIRST].get(1).look == Vector([3, 1])
        assert db[FIRST].count() == len(VECTORS)
        report = db.check()
        assert report.ok
        assert [reason for reason in report.unchecked if reason.startswith("texts.near: its description is unknown")]
        assert db.drop_index(FIRST, "near")
        db[FIRST].patch(1, look=None)
        assert db.apply().complete
        assert found(db[FIRST].similar("near", ORIGIN)) == expected("cosine", lambda key: key != 1)
        assert audit(read_store(db.kv), [spec_of(FIRST)]) == []
