"""The normal form of a filter: conditions on one column each, joined by "all of" and "any of", without negation.

Negation is pushed down to the conditions, each of which can be negated, so ``not (a and b)`` is ``not a or not b``.
``AllOf(())`` holds always, ``AnyOf(())`` never.

Rules of this module: data only; ``schema/predicates.py`` makes it of expressions and keyword lookups, with operands
that are converted and checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from kvmodels.schema.expressions import Lookup

__all__ = ["AllOf", "AnyOf", "Condition", "Predicate", "conditions_of"]


class Condition(NamedTuple):
    """One column compared with an operand that was converted and checked.

    ``operand`` is a value; a tuple of distinct values for ``in`` and ``not_in``; ``(low, high, bounds)`` for
    ``range``; a bool for ``isnull``. ``exact`` and ``ne`` never hold None. The field ``pk`` with ``in`` or ``not_in``
    is a composite primary key, and its operand holds tuples. ``contains_any`` and ``contains_all`` of a field with
    several values are made of ``exact`` and ``in`` with ``any``; ``contains`` is left for parts of a text.

    Attributes:
        any: at least one value of a column with several satisfies it; without it, for such a field, the whole field
            is compared.
        negated: it does not hold; for a column of one value this is the complement, None included.
    """

    field: str
    lookup: Lookup
    operand: Any
    any: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds; no part is an ``AllOf`` itself."""

    parts: tuple[Condition | AnyOf, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds; no part is an ``AnyOf`` itself."""

    parts: tuple[Condition | AllOf, ...]


Predicate: TypeAlias = Condition | AllOf | AnyOf


def conditions_of(predicate: Predicate) -> Iterator[Condition]:
    """All conditions in a predicate, in order."""
    if isinstance(predicate, Condition):
        yield predicate
    else:
        for part in predicate.parts:
            yield from conditions_of(part)
