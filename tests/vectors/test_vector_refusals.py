"""Every verb refuses a vector that no entry can hold, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from kvmodels import Database, InvalidValueError, KvModel, PrimaryKey, Vector, VectorIndex

GOOD = Vector([1, 2, 3])
ZERO = Vector([0, -0.0, 0])
SHORT = Vector([1, 2])
LARGE = Vector([1, 2, 65_520])
"""float16 rounds it to infinity."""


class Text(KvModel, collection="texts"):
    id: PrimaryKey[int]
    topic: str = "a"
    look: Vector | None = None

    class Meta:
        indexes: ClassVar = (
            VectorIndex("look", dim=3, group="topic", name="by_look"),
            VectorIndex("look", dim=3, metric="l2", store="float16", name="near"),
        )


def saved(db: Database, look: Vector) -> None:
    texts = db[Text]
    one = texts.get(1)
    one.look = look
    texts.save(one)


def mutated(db: Database, look: Vector) -> None:
    def change(one: Text) -> None:
        one.look = look

    db[Text].mutate(1, change)


def in_a_transaction(db: Database, look: Vector) -> None:
    with db.transaction() as transaction:
        transaction[Text].create(id=2, look=GOOD)
        transaction[Text].patch(1, look=look)


WRITES: dict[str, Callable[[Database, Vector], object]] = {
    "create": lambda db, look: db[Text].create(id=2, look=look),
    "insert": lambda db, look: db[Text].insert(Text(id=2, look=look)),
    "save": saved,
    "save a new one": lambda db, look: db[Text].save(Text(id=2, look=look)),
    "patch": lambda db, look: db[Text].patch(1, look=look),
    "mutate": mutated,
    "get_or_create": lambda db, look: db[Text].get_or_create(id=2, defaults={"look": look}),
    "update_or_create": lambda db, look: db[Text].update_or_create(id=1, defaults={"look": look}),
    "bulk_create": lambda db, look: db[Text].bulk_create([Text(id=2, look=GOOD), Text(id=3, look=look)]),
    "update": lambda db, look: db[Text].filter(id=1).update(look=look),
    "transaction": in_a_transaction,
}


@pytest.mark.parametrize("look", [ZERO, SHORT, LARGE], ids=["zero", "short", "large"])
@pytest.mark.parametrize("verb", WRITES)
def test_a_vector_that_an_index_does_not_take_is_refused_by_every_verb(verb: str, look: Vector):
    with Database("memory://", models=[Text]) as db:
        db[Text].create(id=1, look=GOOD)
        before = list(db.kv.list(prefix=()))
        with pytest.raises(InvalidValueError) as refused:
            WRITES[verb](db, look)
        assert refused.value.field == "look"
        assert list(db.kv.list(prefix=())) == before


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e39])
def test_no_model_has_a_vector_with_a_number_that_is_not_finite(number: float):
    with Database("memory://", models=[Text]) as db:
        db[Text].create(id=1, look=GOOD)
        before = list(db.kv.list(prefix=()))
        with pytest.raises(ValidationError):
            db[Text].create(id=2, look=[1, number, 3])
        with pytest.raises(ValidationError):
            db[Text].patch(1, look=[1, number, 3])
        assert list(db.kv.list(prefix=())) == before


def test_a_record_without_a_vector_needs_no_entry():
    with Database("memory://", models=[Text]) as db:
        db[Text].create(id=1)
        db[Text].create(id=2, look=GOOD)
        db[Text].patch(2, look=None)
        assert db[Text].similar("near", GOOD).count() == 0
        assert db.check().ok


def test_a_stored_value_that_is_no_vector_is_no_result_and_is_found_by_a_check():
    """Another program has written documents behind the back of the library, beside entries of before."""
    with Database("memory://", models=[Text]) as db:
        db[Text].bulk_create([Text(id=key, look=GOOD) for key in range(4)])
        nan = b"\0\0\xc0\x7f" * 3
        for key, value in enumerate([nan, b"\0\0\0", "text"]):
            stored: Any = db.kv.get(("texts", key)).value
            db.kv.unsafe().set(("texts", key), {**stored, "look": value})
        for name in ("by_look", "near"):
            query = db[Text].filter(topic="a").similar(name, GOOD)
            assert [hit.record.id for hit in query[:10]] == [3]
        assert {found.key[1] for found in db.check().findings if found.kind == "undecodable"} == {0, 1, 2}
