"""The state of an object follows it through copies and pickles, and is no part of what it is."""

import copy
import gc
import pickle

import pytest
from pydantic import BaseModel

from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.markers import PrimaryKey
from kvmodels.schema.instances import (
    STATE_SLOT,
    ObjectState,
    drop_state,
    set_state,
    set_unpacker,
    state_of,
    unknown_of,
)

STATE = ObjectState(bytes(9) + b"\x07", b"stored", 4, None, (1,), {"old": 1})


class Note(KvModel, frozen=True):
    id: PrimaryKey[int]
    tags: list[str] = []


class Stamped(BaseModel):
    made: int = 1


class Mixed(Stamped, KvModel):
    id: PrimaryKey[int]
    _cache: int = 5


@pytest.fixture(params=[Note, Mixed])
def stored(request):
    instance = request.param(id=1)
    set_state(instance, STATE)
    return instance


@pytest.mark.parametrize(
    "duplicate",
    [
        copy.copy,
        copy.deepcopy,
        lambda instance: pickle.loads(pickle.dumps(instance)),
        lambda instance: instance.model_copy(),
        lambda instance: instance.model_copy(deep=True),
        lambda instance: instance.model_copy(update={"id": 1}),
    ],
)
def test_copies_keep_the_state(stored, duplicate):
    copied = duplicate(stored)
    assert state_of(copied) == STATE
    assert copied == stored


def test_copies_of_a_new_object_are_new():
    for duplicate in (copy.copy, copy.deepcopy, lambda instance: pickle.loads(pickle.dumps(instance))):
        assert state_of(duplicate(Note(id=1))) is None


def test_the_state_is_no_part_of_equality_hash_and_repr(stored):
    new = type(stored)(id=1)
    assert stored == new
    assert repr(stored) == repr(new)
    assert stored.model_dump() == new.model_dump()
    assert "__kv_state__" not in stored.__dict__


def test_equal_objects_of_a_frozen_model_have_one_hash():
    class Point(KvModel, frozen=True):
        id: PrimaryKey[int]

    stored = Point(id=1)
    set_state(stored, STATE)
    assert hash(stored) == hash(Point(id=1))


def test_objects_know_whether_they_are_stored(stored):
    assert stored.is_persisted
    assert stored.versionstamp == "00000000000000000007"
    drop_state(stored)
    assert not stored.is_persisted
    assert stored.versionstamp is None
    drop_state(stored)


def test_a_dropped_state_can_be_set_again(stored):
    drop_state(stored)
    set_state(stored, STATE)
    assert state_of(stored) is STATE


@pytest.mark.usefixtures("few_objects")
def test_a_row_that_stands_for_a_state_is_not_traced_by_the_garbage_collector(stored):
    encoding = STATE.encoding  # a name, so that this is no constant, which is never traced
    row = (b"\x02cities\x00!\x01", b"\x80", encoding, b"\x00" * 9 + b"\x07", None)
    set_unpacker(type(stored), lambda packed: (len(packed),))
    object.__setattr__(stored, STATE_SLOT, row)
    gc.collect()
    assert not gc.is_tracked(object.__getattribute__(stored, STATE_SLOT))
    assert unknown_of(stored) == {}
    assert state_of(stored) == ObjectState(row[3], row[1], row[2], row[4], (len(row[0]),), {})
