"""Models with up to three foreign keys, and the meaning of queries through them in plain Python over all records.

``Crate`` refers to two depots and a keeper, ``Depot`` to two keepers, and ``Keeper`` to another one. Depots have links
to any number of keepers. A drawn filter is a tree of the tuples below, which ``drawn_shapes`` turns into a query.
Nothing of the package is used to answer it.

Rules of this module: a model is added by its class, its foreign keys in ``KEYS``, and its objects in ``stocked``. Each
rule of the meaning is a method of ``Records`` of its own, so that a test can plant a fault there.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

from kvmodels import (
    AggregateIndex,
    Database,
    Field,
    ForeignKey,
    Index,
    Indexed,
    KvModel,
    ManyToMany,
    PrimaryKey,
    Unique,
)


class Keeper(KvModel, collection="keepers"):
    id: PrimaryKey[int]
    email: Annotated[str, Unique()]
    age: Indexed[int]
    boss: ForeignKey[int | None, "Keeper"] = Field(default=None)  # noqa: UP037
    nick: str | None = None
    note: str = ""


class Depot(KvModel, collection="depots"):
    id: PrimaryKey[int]
    name: Indexed[str]
    owner: ForeignKey[int | None, Keeper] = Field(default=None)
    lead_id: ForeignKey[int, Keeper]
    guards: ManyToMany[Keeper] = ManyToMany(related_name="guarded")
    note: str = ""


class Crate(KvModel, collection="crates"):
    id: PrimaryKey[int]
    depot: ForeignKey[int | None, Depot] = Field(default=None)
    spare_id: ForeignKey[int | None, Depot] = Field(default=None)
    keeper: ForeignKey[int | None, Keeper] = Field(default=None)
    status: Indexed[str]
    created: Indexed[int]
    size: int
    most: int | None = None
    note: str = ""

    class Meta:
        indexes = (
            Index("depot", "-created"),
            Index("depot", "status", "created"),
            AggregateIndex("keeper", sums=("size",)),
            AggregateIndex("keeper", "status", sums=("size",)),
        )


MODELS: tuple[type[Any], ...] = (Keeper, Depot, Crate)
KEYS: dict[tuple[str, str], str] = {
    ("Keeper", "boss"): "Keeper",
    ("Depot", "owner"): "Keeper",
    ("Depot", "lead_id"): "Keeper",
    ("Crate", "depot"): "Depot",
    ("Crate", "spare_id"): "Depot",
    ("Crate", "keeper"): "Keeper",
}
"""The foreign keys: the model and the field, and the model of the targets."""

LINKS = "Links"
"""The name under which the links of depots and keepers are kept: pairs of their keys, in order."""

LINKED = {"guards": "Keeper", "guarded": "Depot"}
"""The relation and its name on the other side, and the model of the other side."""

Rows: TypeAlias = dict[str, list[Any]]
BATCH = 2
"""Records that are written at once: their checks and mutations fit into an operation of each engine."""


class Is(NamedTuple):
    """A lookup of a field of a record, or of a field of a target at the end of a path."""

    path: str
    lookup: str
    operand: Any


class Compared(NamedTuple):
    """A lookup of a field with another field of the same record."""

    field: str
    lookup: str
    other: str


class OfQuery(NamedTuple):
    """A field is, or is not, among the keys of another query: of its targets, or of a foreign key of other records."""

    field: str
    model: str
    where: tuple[Any, ...]
    selected: str | None
    is_negated: bool


class Linked(NamedTuple):
    """A record has, or does not have, a link to a record that satisfies all conditions."""

    relation: str
    where: tuple[Is, ...]
    is_negated: bool


class Neg(NamedTuple):
    """A negation."""

    inner: Any


class Joined(NamedTuple):
    """Conditions that all hold, or of which one holds."""

    parts: tuple[Any, ...]
    is_or: bool


Condition: TypeAlias = Is | Compared | OfQuery | Linked | Neg | Joined

ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


class Records:
    """All records in memory, and the answers of a Python program about them.

    Args:
        rows: the objects of each model, by its name.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    @classmethod
    def of(cls, repositories: Any) -> Records:
        """Return the records of a database or a transaction, as it reads them."""
        rows: Rows = {model.__name__: list(repositories[model].all()) for model in MODELS}
        links = repositories[repositories[Depot].links(Depot.guards).model].all()
        return cls({**rows, LINKS: [(link.owner_id, link.target_id) for link in links]})

    # --- values and targets -------------------------------------------------------------------------------------

    def value(self, record: Any, path: str) -> Any:
        """Return the value at the end of a path; None where a foreign key on the way is None."""
        head, _, rest = path.partition("__")
        if not rest:
            return getattr(record, _field_of(record, head))
        target = self.target(record, head)
        return None if target is None else self.value(target, rest)

    def target(self, record: Any, path: str) -> Any:
        """Return the record at the end of a path of foreign keys, or None."""
        head, _, rest = path.partition("__")
        field = _field_of(record, head)
        key = getattr(record, field)
        if key is None:
            return None
        target = next(one for one in self.rows[KEYS[type(record).__name__, field]] if one.id == key)
        return self.target(target, rest) if rest else target

    # --- filters ------------------------------------------------------------------------------------------------

    def holds(self, record: Any, condition: Condition) -> bool:
        """Whether a record satisfies a condition."""
        if isinstance(condition, Is):
            return self.compares(self.value(record, condition.path), condition.lookup, condition.operand)
        if isinstance(condition, Compared):
            left, right = getattr(record, condition.field), getattr(record, condition.other)
            return self.compares(left, condition.lookup, right)
        if isinstance(condition, OfQuery):
            return (getattr(record, condition.field) in self.keys_of(condition)) is not condition.is_negated
        if isinstance(condition, Linked):
            found = self.linked(record, condition.relation)
            return self.any_satisfies(found, condition.where) is not condition.is_negated
        if isinstance(condition, Neg):
            return self.negation_holds(record, condition.inner)
        return (any if condition.is_or else all)(self.holds(record, part) for part in condition.parts)

    def negation_holds(self, record: Any, inner: Condition) -> bool:
        """Whether the negation of a condition holds."""
        return not self.holds(record, inner)

    def compares(self, value: Any, lookup: str, operand: Any) -> bool:
        """Whether a value satisfies a lookup: None equals None, and has no order."""
        if lookup == "isnull":
            return (value is None) is operand
        if lookup in ("exact", "ne"):
            return (value == operand) is (lookup == "exact")
        if lookup in ("in", "not_in"):
            return (value in operand) is (lookup == "in")
        return value is not None and operand is not None and ORDERED[lookup](value, operand)

    def keys_of(self, operand: OfQuery) -> set[Any]:
        """Return the keys that a query among the operands has."""
        found = self.matching(operand.model, operand.where)
        return {getattr(one, operand.selected or "id") for one in found} - {None}

    def linked(self, record: Any, relation: str) -> list[Any]:
        """Return the records to which a record has a link, in the order of their keys."""
        at = 0 if relation == "guards" else 1
        keys = {pair[1 - at] for pair in self.rows[LINKS] if pair[at] == record.id}
        return [one for one in self.rows[LINKED[relation]] if one.id in keys]

    def any_satisfies(self, found: Iterable[Any], where: Iterable[Condition]) -> bool:
        """Whether one of some records satisfies all conditions."""
        return any(all(self.holds(one, part) for part in where) for one in found)

    def matching(self, model: str, where: Iterable[Condition]) -> list[Any]:
        """Return the records of a model that satisfy all conditions, in the order of their keys."""
        return [one for one in self.rows[model] if all(self.holds(one, part) for part in where)]

    # --- orders and slices --------------------------------------------------------------------------------------

    def in_order(self, found: Iterable[Any], order: Sequence[str]) -> list[Any]:
        """Return records in an order, ``-`` for descending; None is less than everything."""
        ordered = list(found)
        for column in reversed(order):
            path = column.removeprefix("-").replace(".", "__")
            ordered.sort(key=lambda one, of=path: self.rank(self.value(one, of)), reverse=column.startswith("-"))  # type: ignore[misc]
        return ordered

    def rank(self, value: Any) -> tuple[bool, Any]:
        """Return the place of a value in an order."""
        return (value is not None, 0 if value is None else value)

    def part(self, found: Sequence[Any], start: int, stop: int) -> list[Any]:
        """Return a slice of the results."""
        return list(found[start:stop])

    # --- records that refer to others ---------------------------------------------------------------------------

    def referring(self, target: Any, model: str, field: str, where: Iterable[Condition] = ()) -> list[Any]:
        """Return the records of a model whose foreign key is a target, and that satisfy all conditions."""
        return [one for one in self.matching(model, where) if getattr(one, field) == target.id]

    def first_of_each(self, found: Sequence[Any], limit: int) -> list[Any]:
        """Return the first records that refer to one target."""
        return list(found[:limit])

    def total(self, found: Sequence[Any], field: str) -> int | None:
        """Return a sum; None if there are no records."""
        return sum(getattr(one, field) for one in found) if found else None


def _field_of(record: Any, name: str) -> str:
    """Return the field that a name in a path means: its own, or without ``_id`` that of a foreign key."""
    fields = type(record).model_fields
    return "id" if name == "pk" else name if name in fields else f"{name}_id"


def stocked(db: Database, drawn: random.Random, crates: int = 30) -> Records:
    """Store drawn records of all models, and return them."""
    keepers = [
        Keeper(
            id=n,
            email=f"k{n}@x",
            age=drawn.randrange(4),
            boss=drawn.choice([None, *range(n)]),
            nick=drawn.choice([None, "a", "b"]),
        )
        for n in range(5)
    ]
    depots = [
        Depot(id=n, name=drawn.choice("pqr"), owner=drawn.choice([None, *range(4)]), lead_id=drawn.randrange(4))
        for n in range(7)
    ]
    stored = [drawn_crate(n, drawn) for n in range(crates)]
    for model, objects in ((Keeper, keepers), (Depot, depots), (Crate, stored)):
        repository: Any = db[model]
        repository.bulk_create(objects, batch_size=BATCH)
    links: list[tuple[int, int]] = []
    for depot in depots:
        guards = sorted(drawn.sample(range(5), drawn.choice([0, 1, 2, 3])))
        db[Depot].links(Depot.guards).set(depot, guards)
        links += [(depot.id, guard) for guard in guards]
    return Records({"Keeper": keepers, "Depot": depots, "Crate": stored, LINKS: links})


def drawn_crate(number: int, drawn: random.Random) -> Crate:
    """Return a crate with drawn fields."""
    return Crate(
        id=number,
        depot=drawn.choice([None, *range(6)]),
        spare_id=drawn.choice([None, None, *range(6)]),
        keeper=drawn.choice([None, *range(4)]),
        status=drawn.choice(["up", "down", "new"]),
        created=drawn.randrange(20),
        size=drawn.randrange(6),
        most=drawn.choice([None, *range(6)]),
    )
