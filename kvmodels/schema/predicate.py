"""The normal form of a filter: conditions on one column each, joined by "all of" and "any of", without negation.

Negation is pushed down to the conditions, each of which can be negated, so ``not (a and b)`` is ``not a or not b``.
``AllOf(())`` holds always, ``AnyOf(())`` never. A filter is a conjunction: a tuple of parts that all hold.

Rules of this module: data and its simplification, which knows no model; ``schema/predicates.py`` makes it of
expressions and keyword lookups, with operands that are converted and checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kvmodels.schema.expressions import Lookup
from kvmodels.slotted import dataclass

__all__ = [
    "ALWAYS",
    "NEVER",
    "AllOf",
    "AnyOf",
    "Condition",
    "Conjunction",
    "Predicate",
    "all_of",
    "any_of",
    "conditions_of",
    "conjunction",
]

V = TypeVar("V")


class Condition(NamedTuple):
    """One column compared with an operand that was converted and checked.

    ``operand`` is a value; a tuple of distinct values, one at least, for ``in`` and ``not_in``; ``(low, high, bounds)``
    for ``range``; a bool for ``isnull``. ``exact`` and ``ne`` never hold None. The field ``pk`` with ``in`` or
    ``not_in`` is a composite primary key, and its operand holds tuples. ``contains_any`` and ``contains_all`` of a
    field with several values are made of ``exact`` and ``in`` with ``any``; ``contains`` is left for parts of a text.

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
Conjunction: TypeAlias = tuple[Condition | AnyOf, ...]

ALWAYS: Final = AllOf(())
NEVER: Final = AnyOf(())


def all_of(parts: Iterable[Predicate]) -> Predicate:
    """What holds exactly if every part holds."""
    joined = conjunction(parts)
    return joined[0] if len(joined) == 1 else AllOf(joined)


def conjunction(parts: Iterable[Predicate]) -> Conjunction:
    """The parts that must all hold: flat, each once; ``(NEVER,)`` if one of them never holds.

    Examples:
        >>> red = Condition("color", "exact", "red")
        >>> conjunction([red, AllOf((red,))])
        (Condition(field='color', lookup='exact', operand='red', any=False, negated=False),)
        >>> conjunction([red, NEVER])
        (AnyOf(parts=()),)
    """
    flat: list[Condition | AnyOf] = []
    for part in parts:
        flat += part.parts if isinstance(part, AllOf) else (part,)
    if len(flat) == 1:
        return (flat[0],)
    return (NEVER,) if any(isinstance(part, AnyOf) and not part.parts for part in flat) else _distinct(flat)


def any_of(parts: Iterable[Predicate]) -> Predicate:
    """What holds exactly if at least one part holds; several values for one column become one ``in``.

    Examples:
        >>> any_of([Condition("age", "exact", 3), Condition("age", "in", (3, 4))])
        Condition(field='age', lookup='in', operand=(3, 4), any=False, negated=False)
    """
    flat: list[Condition | AllOf] = []
    for part in parts:
        flat += part.parts if isinstance(part, AnyOf) else (part,)
    if any(isinstance(part, AllOf) and not part.parts for part in flat):
        return ALWAYS
    joined = _distinct(_with_joined_values(flat))
    return joined[0] if len(joined) == 1 else AnyOf(joined)


def conditions_of(predicate: Predicate) -> Iterator[Condition]:
    """All conditions in a predicate, in order."""
    if isinstance(predicate, Condition):
        yield predicate
    else:
        for part in predicate.parts:
            yield from conditions_of(part)


def _with_joined_values(parts: Iterable[Condition | AllOf]) -> Iterable[Condition | AllOf]:
    """``a = 1 or a = 2`` is ``a in (1, 2)``, which is one walk of an index instead of two."""
    joined: dict[Any, Condition | AllOf] = {}
    for number, part in enumerate(parts):
        values = _values_of(part)
        if values is None or not isinstance(part, Condition):
            joined[number] = part
            continue
        column = (part.field, part.any)
        known = _values_of(joined.get(column))
        joined[column] = part if known is None else part._replace(lookup="in", operand=_distinct([*known, *values]))
    return joined.values()


def _values_of(part: Condition | AllOf | None) -> tuple[Any, ...] | None:
    """The values of which the column must have one; None if the part says something else."""
    if not isinstance(part, Condition) or part.negated:
        return None
    if part.lookup == "isnull":
        return (None,) if part.operand else None
    if part.lookup == "in":
        return tuple(part.operand)
    return (part.operand,) if part.lookup == "exact" else None


def _distinct(values: Iterable[V]) -> tuple[V, ...]:
    """Each once, in order; what cannot be hashed, such as a list as an operand, is kept as it is."""
    seen: set[Any] = set()
    kept: list[V] = []
    for value in values:
        try:
            if value in seen:
                continue
            seen.add(value)
        except TypeError:
            pass
        kept.append(value)
    return tuple(kept)
