"""A query as the operand of ``in_``, such as ``Book.author_id.in_(authors.filter(country="CH"))``.

Rules of this module: it describes the operand and reads nothing; ``flows/reading/semi_join.py`` reads its keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)


class Subquery:
    """A query for the records of another model; equal only to itself.

    Attributes:
        query: the ``Query``.
        schemas: the models of its database by collection, which identify the database.
    """

    __slots__ = ("query", "schemas")

    query: Any
    schemas: Any

    def __init__(self, query: Any, schemas: Any) -> None:
        self.query = query
        self.schemas = schemas

    def __repr__(self) -> str:
        return str(self.query.summary("Query"))


class SubqueryOperand(ABC, Generic[R_co]):
    """Base class of query sets, which ``in_`` of a foreign key accepts as operands."""

    __slots__ = ()

    @abstractmethod
    def __subquery__(self) -> Subquery | None:
        """Return the query as an operand; None if its results are not records."""


def subquery_of(operand: object) -> Subquery | None:
    """Return the query of an operand; None for values."""
    if isinstance(operand, Subquery):
        return operand
    return operand.__subquery__() if isinstance(operand, SubqueryOperand) else None
