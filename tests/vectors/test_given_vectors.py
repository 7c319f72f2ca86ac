"""Forms in which users give vectors: views of memory, attributes without validation; and filters of many groups."""

from __future__ import annotations

from array import array
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from kvmodels import Field, Indexed, InvalidValueError, KvModel, NoUsableIndexError, PrimaryKey, Vector, VectorIndex
from tests.query.engines import watched


class Note(KvModel, collection="notes"):
    """A note of a team."""

    id: PrimaryKey[int]
    team: int = 0
    day: Indexed[int] = Field(default=0)
    look: Vector[2] = Vector([1, 0])  # type: ignore[type-arg,valid-type]

    class Meta:
        indexes: ClassVar = (VectorIndex("look", group="team", name="looks"),)


def view(numbers: Any) -> memoryview:
    """A view of an object that is a buffer, which type checkers do not know of arrays of numpy."""
    return memoryview(numbers)


@pytest.mark.parametrize(
    "given",
    [array("f", [1, 2]), np.array([1.0, 9.0, 2.0])[::2]],
    ids=["floats", "every other"],
)
def test_a_view_of_floats_is_a_vector(given: Any):
    assert Vector(view(given)) == Vector([1, 2])


@pytest.mark.parametrize(
    "given",
    [
        view(Vector([1, 2]).tobytes()),
        view(np.array([1, 2], dtype=">f4")),
        view(np.array([1, 2], dtype=np.float16)),
        np.ndarray,
        Vector,
    ],
    ids=["bytes", "big endian", "float16", "class of numpy", "class"],
)
def test_a_view_of_bytes_or_of_another_form_is_refused(given: Any):
    with pytest.raises(InvalidValueError, match="list of numbers"):
        Vector(given)
    with pytest.raises(ValidationError, match="list of numbers"):
        Note(id=1, look=given)


@pytest.mark.parametrize("given", [[1, 2], (1, 2), np.array([1, 2])], ids=["list", "tuple", "numpy"])
def test_an_attribute_that_was_set_to_numbers_is_a_list_in_json(given: Any):
    note = Note(id=1)
    note.look = given
    assert note.model_dump_json() == '{"id":1,"team":0,"day":0,"look":[1.0,2.0]}'
    assert note.model_dump(mode="json")["look"] == [1.0, 2.0]


def test_a_vector_without_an_annotation_is_a_list_in_json():
    changes = {"look": (None, Vector([1, 2, 3, 4]))}
    assert to_jsonable_python(changes, serialize_unknown=True) == {"look": [None, [1, 2, 3, 4]]}
    assert TypeAdapter(Any).dump_json([Vector([1])]) == b"[[1.0]]"
    assert TypeAdapter(Any).dump_python(changes) == changes


def test_numpy_is_told_that_another_type_needs_a_copy():
    vector = Vector([1, 2])
    with pytest.raises(ValueError, match="copy"):
        np.asarray(vector, dtype=np.float64, copy=False)
    assert np.asarray(vector, dtype=np.float32, copy=False).tolist() == [1, 2]


def test_many_groups_are_read_instead_of_looking_for_each_record_in_each_of_them(monkeypatch: pytest.MonkeyPatch):
    db, engine = watched([Note])
    notes = db[Note]
    notes.bulk_create([Note(id=key, team=key % 200, day=key, look=Vector([key, 1])) for key in range(1_000)])
    query = notes.filter(team__in=list(range(200)), day__lt=500).similar("looks", [1, 0])
    ranges: list[int] = []
    begin = engine.begin

    def counted(asked: Any, guard: Any) -> None:
        ranges.append(len(asked))
        begin(asked, guard)

    monkeypatch.setattr(engine, "begin", counted)
    assert [hit.record.id for hit in query[:3]] == [499, 498, 497]
    assert sum(ranges) < 1_000  # and not 200 for each of 500 records
    assert query.count() == 500


def test_more_groups_than_a_query_reads_are_refused_with_their_number():
    db, _ = watched([Note])
    with pytest.raises(NoUsableIndexError) as refused:
        db[Note].filter(team__in=list(range(1_001))).similar("looks", [1, 0])[:1].to_list()
    assert refused.value.hint == "Give at most 1,000 groups of the index 'looks', and not 1,001."
