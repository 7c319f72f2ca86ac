"""Expressions are comparable data, and refuse to be used as truth values."""

import operator
import pickle
from typing import Any

import pytest

from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.expressions import Comparison, FieldRef, Order, col
from kvmodels.schema.declare.markers import Field, Indexed, PrimaryKey


class Person(KvModel):
    id: PrimaryKey[int]
    age: Indexed[int | None] = Field(default=None)
    name: Indexed[str]


@pytest.mark.parametrize(
    ("expression", "lookup", "operand"),
    [
        (Person.age == 3, "exact", 3),
        (Person.age == None, "exact", None),  # noqa: E711
        (Person.age != 3, "ne", 3),
        (Person.age < 3, "lt", 3),
        (Person.age <= 3, "lte", 3),
        (Person.age > 3, "gt", 3),
        (Person.age >= 3, "gte", 3),
        (Person.age.in_(n for n in (1, 2)), "in", (1, 2)),
        (Person.age.not_in([1]), "not_in", (1,)),
        (Person.age.between(1, 2), "range", (1, 2, "[]")),
        (Person.age.between(1, 2, bounds="(]"), "range", (1, 2, "(]")),
        (Person.name.startswith("A"), "startswith", "A"),
        (Person.age.is_null(), "isnull", True),
        (Person.age.is_null(False), "isnull", False),
    ],
)
def test_every_operator_is_one_comparison(expression, lookup, operand):
    field = "name" if lookup == "startswith" else "age"
    assert expression == Comparison(field, lookup, operand, Person)
    assert hash(expression) == hash(Comparison(field, lookup, operand, Person))


def test_the_reflected_operators_turn_around():
    assert operator.lt(3, Person.age) == (Person.age > 3)
    assert operator.ge(3, Person.age) == (Person.age <= 3)


def test_orders_name_field_and_direction():
    assert Person.age.asc() == Order("age", False, Person)
    assert Person.age.desc() == Order("age", True, Person)


def test_a_minus_before_a_field_is_refused_with_the_order_to_write():
    age: Any = Person.age
    with pytest.raises(InvalidValueError, match=r'Write Person.age.desc\(\), or "-age"'):
        -age


@pytest.mark.parametrize(
    "use",
    [
        lambda: bool(Person.age > 3),
        lambda: not (Person.age > 3),
        lambda: Person.age > 3 and Person.name == "x",
        lambda: 3 < Person.age < 5,
        lambda: Person.age in [Person.name],
    ],
)
def test_an_expression_has_no_truth_value(use):
    with pytest.raises(TypeError, match=r"no truth value; use & .* between\(\)"):
        use()


def test_unknown_bounds_are_refused():
    with pytest.raises(InvalidArgumentError) as caught:
        Person.age.between(1, 2, bounds="<>")  # type: ignore[arg-type]
    assert (caught.value.argument, caught.value.value) == ("bounds", "<>")


def test_col_returns_the_field_and_refuses_everything_else():
    assert isinstance(col(Person.age), FieldRef)
    age: Any = Person.age
    assert (col(age) > 1) == (Person.age > 1)
    with pytest.raises(InvalidArgumentError, match="not a field"):
        col(Person(id=1, name="x").name)


def test_field_references_are_hashable_and_readable():
    assert repr(Person.age) == "Person.age"
    assert repr(FieldRef("age")) == "FieldRef('age')"
    assert len({hash(Person.age), hash(Person.age)}) == 1


def test_expressions_survive_pickling():
    assert pickle.loads(pickle.dumps(Person.age >= 3)) == (Person.age >= 3)
