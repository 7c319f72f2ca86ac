"""ULIDs sort by time, rise strictly whatever the clock does, and are a pydantic type."""

from __future__ import annotations

import copy
import json
import os
import pickle
import sys
import threading
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from kvmodels.core.ulid import ULID, UlidGenerator
from kvmodels.errors import InvalidArgumentError, InvalidValueError, UnsupportedError

NUMBERS = st.integers(0, 2**128 - 1)
TEXT = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


class Clock:
    """A clock that says what the test wants."""

    def __init__(self, *times: int) -> None:
        self.times = list(times)

    def __call__(self) -> int:
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]


@given(NUMBERS)
def test_all_forms_give_the_same_ulid(number):
    ulid = ULID(number)
    assert int(ulid) == number == ulid.uuid.int
    assert len(str(ulid)) == 26
    for form in (str(ulid), str(ulid).lower(), bytes(ulid), bytearray(bytes(ulid)), UUID(int=number), ulid):
        assert ULID(form) == ulid
    assert ULID.from_parts(ulid.timestamp_ms, bytes(ulid)[6:]) == ulid
    assert eval(repr(ulid)) == ulid


@given(NUMBERS, NUMBERS)
def test_numbers_texts_bytes_and_objects_have_one_order(left, right):
    a, b = ULID(left), ULID(right)
    assert (a < b) == (left < right) == (str(a) < str(b)) == (bytes(a) < bytes(b))
    assert (a <= b, a > b, a >= b, a == b) == (left <= right, left > right, left >= right, left == right)
    assert (hash(a) == hash(b)) == (left == right)


def test_the_example_of_the_ulid_text():
    ulid = ULID(TEXT)
    assert ulid.timestamp_ms == 1469922850259
    assert ulid.datetime == datetime(2016, 7, 30, 23, 54, 10, 259000, tzinfo=UTC)
    assert ULID(2**128 - 1) == ULID("7ZZZZZZZZZZZZZZZZZZZZZZZZZ")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0" * 25,
        "0" * 27,
        "8" + "0" * 25,
        "I" * 26,
        "0" * 25 + "U",
        "0" * 25 + "\u0661",
        "0" * 24 + "\u00df",
        TEXT + "\n",
        b"1" * 15,
        b"1" * 17,
        -1,
        2**128,
    ],
)
def test_what_is_no_ulid_is_refused(value):
    with pytest.raises(InvalidArgumentError):
        ULID(value)


@pytest.mark.parametrize("value", [1.0, True, [], object()])
def test_a_type_that_cannot_be_a_ulid_is_refused(value):
    with pytest.raises(InvalidValueError):
        ULID(value)


@pytest.mark.parametrize(("ms", "randomness"), [(-1, bytes(10)), (2**48, bytes(10)), (0, bytes(9)), (0, bytes(11))])
def test_parts_outside_their_range_are_refused(ms, randomness):
    with pytest.raises(InvalidArgumentError):
        ULID.from_parts(ms, randomness)


def test_a_ulid_is_immutable_hashable_and_survives_copying():
    ulid = ULID(TEXT)
    with pytest.raises(AttributeError):
        ulid._value = "x"
    with pytest.raises(AttributeError):
        del ulid._value
    assert pickle.loads(pickle.dumps(ulid)) == copy.deepcopy(ulid) == copy.copy(ulid) == ulid
    assert {ulid: 1}[ULID(TEXT)] == 1
    assert ulid != TEXT
    with pytest.raises(TypeError):
        _ = ulid < TEXT


# -- generation


def test_within_a_millisecond_the_random_part_counts_up():
    generator = UlidGenerator(clock_ms=lambda: 1469922850259, randomness=lambda size: b"\x01" * size)
    first, second = ULID(generator.next_int()), ULID(generator.next_int())
    assert int(second) == int(first) + 1
    assert first.timestamp_ms == second.timestamp_ms == 1469922850259


def test_a_clock_that_steps_back_does_not_turn_the_order():
    generator = UlidGenerator(clock_ms=Clock(1000, 1001, 5, 4, 1001, 1002))
    made = [ULID(generator.next_int()) for _ in range(6)]
    assert made == sorted(set(made))
    assert [ulid.timestamp_ms for ulid in made] == [1000, 1001, 1001, 1001, 1001, 1002]


def test_a_new_millisecond_draws_new_random_bits():
    drawn = iter([b"\xff" * 10, b"\x00" * 10])
    generator = UlidGenerator(clock_ms=Clock(1, 2), randomness=lambda size: next(drawn))
    assert [bytes(ULID(generator.next_int()))[6:] for _ in range(2)] == [b"\xff" * 10, b"\x00" * 10]


def test_when_the_random_part_overflows_generation_fails_until_the_next_millisecond():
    drawn = iter([b"\xff" * 9 + b"\xfe", bytes(10)])
    generator = UlidGenerator(clock_ms=Clock(7, 7, 7, 7, 8), randomness=lambda size: next(drawn))
    assert [bytes(ULID(generator.next_int()))[-1] for _ in range(2)] == [0xFE, 0xFF]
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="no ULID is left"):
            ULID(generator.next_int())
    assert ULID(generator.next_int()) == ULID.from_parts(8, bytes(10))


@pytest.mark.parametrize("ms", [-1, -(10**6), 2**48])
def test_a_clock_out_of_range_is_reported(ms):
    generator = UlidGenerator(clock_ms=lambda: ms)
    with pytest.raises(UnsupportedError):
        ULID(generator.next_int())


def test_threads_never_get_the_same_ulid_and_each_sees_them_rise():
    made: list[list[ULID]] = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def make(into: list[ULID]) -> None:
        start.wait()
        into.extend(ULID() for _ in range(500))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=make, args=(into,)) for into in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert all(own == sorted(own) for own in made)
    assert len({ulid for own in made for ulid in own}) == 4000


def forked_ulids(generator: UlidGenerator) -> list[ULID]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"".join(bytes(ULID(generator.next_int())) for _ in range(20)))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return [ULID(data[at : at + 16]) for at in range(0, len(data), 16)]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_after_a_fork_parent_and_child_make_different_ulids():
    generator = UlidGenerator(clock_ms=lambda: 1000)  # one millisecond, so that only the fork can tell them apart
    before = [ULID(generator.next_int()) for _ in range(3)]
    child = forked_ulids(generator)
    parent = [ULID(generator.next_int()) for _ in range(20)]
    assert len({*before, *child, *parent}) == 43
    assert child == sorted(child)
    assert child[0] > before[-1]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_while_a_thread_holds_the_lock_leaves_the_child_able_to_generate():
    generator = UlidGenerator()
    with generator._lock:
        child = forked_ulids(generator)
    assert len(set(child)) == 20


# -- pydantic


class Event(BaseModel):
    id: ULID


class StrictEvent(BaseModel):
    model_config = ConfigDict(strict=True)
    id: ULID


def test_python_input_may_be_a_ulid_its_text_or_its_bytes():
    ulid = ULID(TEXT)
    for value in (ulid, TEXT, TEXT.lower(), bytes(ulid), ulid.uuid):
        assert Event.model_validate({"id": value}).id == ulid
    assert Event.model_validate_json(json.dumps({"id": TEXT})).id == ulid


def test_dumps_hold_the_ulid_in_python_and_its_text_in_json():
    event = Event(id=ULID(TEXT))
    assert event.model_dump() == {"id": ULID(TEXT)}
    assert event.model_dump(mode="json") == {"id": TEXT}
    assert json.loads(event.model_dump_json()) == {"id": TEXT}


def test_a_ulid_in_a_field_of_any_type_is_its_text_in_json():
    anything = TypeAdapter[Any](Any)
    assert anything.dump_python([ULID(TEXT)]) == [ULID(TEXT)]
    assert anything.dump_python({"ids": [ULID(TEXT)]}, mode="json") == {"ids": [TEXT]}
    assert anything.dump_json((1, ULID(TEXT))) == f'[1,"{TEXT}"]'.encode()


@pytest.mark.parametrize("value", ["nonsense", b"123", 5, 1.5, None, True])
def test_other_input_is_a_validation_error(value):
    with pytest.raises(ValidationError, match="ULID"):
        Event(id=value)


def test_json_input_of_another_type_is_a_validation_error():
    with pytest.raises(ValidationError):
        Event.model_validate_json('{"id": 5}')


def test_strict_models_take_a_ulid_in_python_and_text_in_json():
    assert StrictEvent(id=ULID(TEXT)).id == ULID(TEXT)
    assert StrictEvent.model_validate_json(json.dumps({"id": TEXT})).id == ULID(TEXT)
    with pytest.raises(ValidationError):
        StrictEvent.model_validate({"id": TEXT})


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_the_json_schema_describes_the_text(mode):
    schema = Event.model_json_schema(mode=mode)["properties"]["id"]
    assert schema["type"] == "string"
    assert (schema["minLength"], schema["maxLength"]) == (26, 26)
    assert schema["pattern"].startswith("^[0-7]")
