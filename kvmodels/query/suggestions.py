"""The index that would serve one alternative of a filter in an order, as a line to add to the model.

Rules of this module: pure. The columns are those with one value or a list of values, then those of the order; without
an order, a column with a range comes last.
"""

from __future__ import annotations

from typing import NamedTuple

from kvmodels.query.accesses import Directions
from kvmodels.query.branches import Branch, Term
from kvmodels.schema.definition import ModelSchema

__all__ = ["Suggestion", "suggested"]


class Suggestion(NamedTuple):
    """What to add to a model.

    Attributes:
        text: "add …", with the code.
        conflict: a field with a range, and the field to order by first: no index gives both.
    """

    text: str
    conflict: tuple[str, str] | None = None


def suggested(schema: ModelSchema, branch: Branch, order: Directions) -> Suggestion | None:
    """The index for a branch in an order; None if no index can serve it."""
    single = [term for term in branch.terms if not term.many]
    points = [term for term in single if _is_list(term) and term.narrows]
    others = [term.field for term in single if term not in points]
    elements = [term for term in branch.terms if term.many]
    order = _without_key(schema, order, {term.field for term in points if _is_one(term)})
    bound = [term.field for term in points if not any(term.field == field for field, _ in order) or _is_one(term)]
    order = tuple((field, down) for field, down in order if field not in bound)
    if not bound and elements and (order or not others) and (not order or _is_list(elements[0])):
        bound = [elements[0].field]
    if order and not bound and others and order[0][0] != others[0] and not points:
        return Suggestion(_addition(schema, order), (others[0], order[0][0]))
    columns = tuple((field, False) for field in bound)
    columns += order or tuple((field, False) for field in others[: 1 if not elements or not bound else 0])
    return Suggestion(_addition(schema, columns)) if columns else None


def _is_list(term: Term) -> bool:
    return term.plain or all(span.point for span in term.compared)


def _is_one(term: Term) -> bool:
    return term.plain or (len(term.compared) == 1 and term.compared[0].point)


def _without_key(schema: ModelSchema, order: Directions, equal: set[str]) -> Directions:
    """The order without what every index gives: the primary key behind its columns."""
    keys = [column.field for column in schema.primary_key if column.field not in equal]
    wanted = dict[str, bool]()
    for field, down in order:
        if all(key in wanted for key in keys):
            break
        if field not in equal:
            wanted.setdefault(field, down)
    steps = list(wanted.items())
    for at in range(len(steps)):
        rest = steps[at:]
        turns = {down for _, down in rest}
        plain = turns == {False} or (at == 0 and len(turns) == 1)
        if plain and [field for field, _ in rest] == keys[: len(rest)]:
            return tuple(steps[:at])
    return tuple(steps)


def _addition(schema: ModelSchema, columns: Directions) -> str:
    # Never "declare the field as Indexed[...]": that line would lose the default and whatever else the field declares.
    names = ", ".join(f'"{"-" if descending else ""}{name}"' for name, descending in columns)
    return f"add Index({names}{_name(schema, columns)}) to the indexes of {schema.name}.Meta"


def _name(schema: ModelSchema, columns: Directions) -> str:
    """A name, where the one that the index would get is taken."""
    name = "_".join(field.replace(".", "_") for field, _ in columns)
    if name not in schema.indexes:
        return ""
    number = 2
    while f"{name}_{number}" in schema.indexes:
        number += 1
    return f', name="{name}_{number}"'
