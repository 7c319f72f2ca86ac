"""bulk_update: objects that were loaded are stored if nobody else changed their records since."""

from __future__ import annotations

import pytest
from pydantic import ValidationError, field_validator

from kvmodels import (
    Database,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    PrimaryKeyChangedError,
    StaleObjectError,
    Unique,
    UniqueViolationError,
    UnknownFieldError,
    Version,
)
from kvmodels.errors import InvalidValueError


class Item(KvModel, collection="items"):
    id: PrimaryKey[int]
    code: Unique[str]
    price: int = 0
    note: str = ""
    revision: int = Version()

    @field_validator("price")
    @classmethod
    def not_negative(cls, price: int) -> int:
        if price < 0:
            raise ValueError("negative")
        return price


def items(count: int = 6) -> Database:
    db = Database("memory://", models=[Item])
    db[Item].bulk_create([Item(id=number, code=f"c{number}") for number in range(count)])
    return db


@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_loaded_objects_are_stored(batch_size: int | None):
    db = items()
    loaded = db[Item].to_list()
    for item in loaded:
        item.price, item.code = item.id * 10, f"d{item.id}"
    result = db[Item].bulk_update(loaded, batch_size=batch_size)
    assert (result.matched, result.written, result.failed) == (6, 6, ())
    assert db[Item].to_list() == loaded
    assert [item.revision for item in loaded] == [2] * 6
    for item in loaded:
        item.price += 1
    assert db[Item].bulk_update(loaded).written == 6
    assert [item.price for item in db[Item]] == [1, 11, 21, 31, 41, 51]
    assert db.check().ok


def test_unique_values_are_exchanged_within_a_batch():
    db = items(2)
    one, two = db[Item].to_list()
    one.code, two.code = two.code, one.code
    db[Item].bulk_update([one, two])
    assert [item.code for item in db[Item]] == ["c1", "c0"]
    assert db.check().ok


@pytest.mark.parametrize("batch_size", [None, 2])
def test_an_object_that_was_overtaken_is_a_failure(batch_size: int | None):
    db = items()
    loaded = db[Item].to_list()
    for item in loaded:
        item.price = 5
    db[Item].patch(1, note="meanwhile")
    db[Item].remove(4)
    with pytest.raises(StaleObjectError) as raised:
        db[Item].bulk_update(loaded, batch_size=batch_size)
    assert raised.value.key == 1
    assert [item.price for item in db[Item]] == [0] * 5
    assert [item.revision for item in loaded] == [1] * 6
    result = db[Item].bulk_update(loaded, batch_size=batch_size, on_error="collect")
    assert (result.matched, result.written) == (6, 4)
    assert [(failure.key, failure.kind) for failure in result.failed] == [
        (1, "StaleObjectError"),
        (4, "StaleObjectError"),
    ]
    assert [item.price for item in db[Item]] == [5, 0, 5, 5, 5]
    assert [item.revision for item in loaded] == [2, 1, 2, 2, 1, 2]


def test_only_the_named_fields_are_stored():
    db = items(3)
    loaded = db[Item].to_list()
    for item in loaded:
        item.price, item.note = 7, "not stored"
    db[Item].bulk_update(loaded, ["price"])
    assert [(item.price, item.note) for item in db[Item]] == [(7, "")] * 3
    assert db[Item].to_list() == loaded
    loaded[0].note = "stored"
    db[Item].save(loaded[0])
    assert db[Item].get(0).note == "stored"


def test_bad_objects_are_refused_before_anything_is_written():
    db = items(3)
    things, (one, two, three) = db[Item], db[Item].to_list()
    one.price = 9
    with pytest.raises(InvalidArgumentError):
        things.bulk_update([one, Item(id=9, code="x")])
    with pytest.raises(InvalidArgumentError):
        things.bulk_update([one, one.model_copy()])
    with pytest.raises(InvalidArgumentError):
        things.bulk_update([one], [])
    with pytest.raises(InvalidArgumentError):
        things.bulk_update([one], ["revision"])
    with pytest.raises(UnknownFieldError):
        things.bulk_update([one], ["cost"])
    with pytest.raises(PrimaryKeyChangedError):
        things.bulk_update([one], ["id"])
    with pytest.raises(InvalidValueError):
        things.bulk_update([one, "x"])  # type: ignore[list-item]
    with pytest.raises(InvalidArgumentError):
        things.bulk_update(5)  # type: ignore[arg-type]
    two.price = -1
    with pytest.raises(ValidationError):
        things.bulk_update([one, two])
    three.id = 30
    with pytest.raises(PrimaryKeyChangedError):
        things.bulk_update([one, three])
    assert [item.price for item in things] == [0, 0, 0]
    result = things.bulk_update([one, two, three], on_error="collect")
    assert [(failure.key, failure.kind) for failure in result.failed] == [
        (1, "ValidationError"),
        (2, "PrimaryKeyChangedError"),
    ]
    assert (result.matched, result.written) == (3, 1)
    assert "-1" not in result.failed[0].message
    assert things.bulk_update([]).written == 0


def test_a_unique_value_of_another_record_leaves_out_one_object():
    db = items(4)
    loaded = db[Item].to_list()[:3]
    for item in loaded:
        item.code = "c3" if item.id == 1 else f"e{item.id}"
    with pytest.raises(UniqueViolationError):
        db[Item].bulk_update(loaded)
    result = db[Item].bulk_update(loaded, on_error="collect")
    assert [(failure.key, failure.kind) for failure in result.failed] == [(1, "UniqueViolationError")]
    assert [item.code for item in db[Item]] == ["e0", "c1", "e2", "c3"]
    assert db.check().ok


def test_in_a_transaction_objects_are_as_they_were_when_it_fails():
    db = items(3)
    loaded = db[Item].to_list()
    for item in loaded:
        item.price = 4
    with pytest.raises(RuntimeError), db.transaction() as tx:
        assert tx[Item].bulk_update(loaded).written == 3
        assert [item.price for item in tx[Item]] == [4, 4, 4]
        raise RuntimeError
    assert [item.price for item in db[Item]] == [0, 0, 0]
    with db.transaction() as tx:
        tx[Item].bulk_update(loaded, ["price"])
    assert [item.revision for item in loaded] == [2, 2, 2]
    loaded[0].price = 5
    db[Item].save(loaded[0])
    assert db.check().ok
