"""The index that would serve one alternative of a filter in an order, as a line to add to the model.

Rules of this module: pure. The columns are those with one value or a list of values, then those of the order; without
an order, a column with a range comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvmodels.query.accesses import Directions
from kvmodels.query.branches import Branch, Term
from kvmodels.schema.definition import ModelSchema

__all__ = ["Suggestion", "is_one", "suggested", "unused_name"]


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
    terms = _Terms(branch)
    if order:
        return _in_order(schema, terms, order)
    bound = [term.field for term in terms.lists]
    if bound and not terms.elements:
        bound += [term.field for term in terms.ranges[:1]]
    elif not bound and terms.first is not None:
        bound = [terms.first.field]
    return _adding(schema, [(field, False) for field in bound])


def _in_order(schema: ModelSchema, terms: _Terms, order: Directions) -> Suggestion | None:
    wanted = _without_key(schema, order, {term.field for term in terms.lists if is_one(term)})
    ordered = {field for field, _ in wanted}
    bound = [term.field for term in terms.lists if term.field not in ordered or is_one(term)]
    if not bound:
        bound = [term.field for term in terms.elements if _is_list(term)][:1]
    rest = tuple((field, down) for field, down in wanted if field not in bound)
    columns = (*((field, False) for field in bound), *rest)
    if not bound and terms.first is None and terms.tested:
        return None
    leading = {term.field for term in (*terms.lists, *terms.ranges, *terms.wide)}
    if bound or terms.first is None or (rest and rest[0][0] in leading):
        return _adding(schema, columns)
    return Suggestion(_addition(schema, rest or order), (terms.first.field, order[0][0]))


def for_order(schema: ModelSchema, order: Directions) -> Suggestion | None:
    """The index that has all records in an order; None if it is that of the primary key."""
    return _adding(schema, _without_key(schema, order, set()))


class _Terms:
    """What a branch says about columns, by how an index can use it."""

    __slots__ = ("elements", "lists", "ranges", "tested", "wide")

    def __init__(self, branch: Branch) -> None:
        single = [term for term in branch.terms if not term.many]
        self.lists = [term for term in single if term.narrows and _is_list(term)]
        self.ranges = [term for term in single if term.narrows and term not in self.lists]
        # What leaves out single values only serves where nothing else is left to test.
        self.wide = [term for term in single if not term.narrows and len(term.at) == len(branch.parts)]
        elements = [term for term in branch.terms if term.many and (term.narrows or len(branch.parts) == 1)]
        self.elements = sorted(elements, key=_is_list, reverse=True)
        self.tested = bool(branch.parts)

    @property
    def first(self) -> Term | None:
        """The best one for the first column of an index."""
        by_element = self.elements[:1]
        listed = [term for term in by_element if _is_list(term)]
        return next(iter((*self.lists, *listed, *self.ranges, *by_element, *self.wide)), None)


def _adding(schema: ModelSchema, columns: Sequence[tuple[str, bool]]) -> Suggestion | None:
    return Suggestion(_addition(schema, columns)) if columns else None


def _is_list(term: Term) -> bool:
    return term.plain or all(span.point for span in term.compared)


def is_one(term: Term) -> bool:
    """Whether a term leaves one value."""
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


def _addition(schema: ModelSchema, columns: Sequence[tuple[str, bool]]) -> str:
    # Never "declare the field as Indexed[...]": that line would lose the default and whatever else the field declares.
    names = ", ".join(f'"{"-" if descending else ""}{name}"' for name, descending in columns)
    name = "_".join(field.replace(".", "_") for field, _ in columns)
    return f"add Index({names}{unused_name(schema, name)}) to the indexes of {schema.name}.Meta"


def unused_name(schema: ModelSchema, name: str) -> str:
    """The argument for a name, where the one that an index would get is taken."""
    if name not in schema.indexes:
        return ""
    number = 2
    while f"{name}_{number}" in schema.indexes:
        number += 1
    return f', name="{name}_{number}"'
