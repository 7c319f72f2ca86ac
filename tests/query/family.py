"""A family of models over the same fields: each member has the indexes that a test has drawn for it.

The values are few and collide: texts that differ in capital letters only, lists that share elements, numbers that
need both halves of a counter. ``Names`` says in plain Python what a name in a query means for a record.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel

from kvmodels import (
    AggregateIndex,
    Index,
    Indexed,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    UniqueConstraint,
)
from tests.query.oracle import Both, Either, Is, Neg, Tree


class Inner(BaseModel):
    """A nested model."""

    x: int
    y: str | None = None


def first_letter(b: str) -> str:
    """A column computed of one text."""
    return b[:1]


def total(a: int, c: int) -> int:
    """A column computed of two numbers."""
    return a + c


def words(d: str) -> list[str]:
    """A column with several values, computed of one text."""
    return d.split()


class Formula(NamedTuple):
    """A computed column: what it is called, of which fields it is made, and how."""

    name: str
    of: tuple[str, ...]
    function: Callable[..., Any]


FORMULAS = {
    formula.name: formula
    for formula in (
        Formula("first", ("b",), first_letter),
        Formula("total", ("a", "c"), total),
        Formula("words", ("d",), words),
    )
}

NUMBERS = ("a", "c", "e", "group", "id", "m", "o.x", "total")
TEXTS = ("b", "d", "o.y", "first")
SEVERAL_NUMBERS = ("n", "l.x")
SEVERAL_TEXTS = ("t", "words")
SINGLE = ("a", "b", "c", "d", "e", "f", "k", "m", "o.x", "o.y", "w")
NULLABLE = ("a", "b", "d", "e", "f", "o.x", "o.y", "w")
MANY = ("t", "n", "l.x")
LARGE = 2**40
EARLY = datetime(2024, 1, 1, 12, tzinfo=UTC)
TIMES = (
    EARLY,
    EARLY.astimezone(timezone(timedelta(hours=5, minutes=30))),
    EARLY + timedelta(microseconds=1),
    datetime(2024, 1, 1, 13, tzinfo=timezone(timedelta(hours=2))),
)
"""Two of them are the same instant, told in two zones."""
FLOATS = (float("-inf"), -1.5, -0.0, 0.0, 5e-324, 2.0, float("inf"))
OTHERS: dict[str, tuple[Any, ...]] = {"f": FLOATS, "k": (False, True), "w": TIMES}
"""Columns that are neither numbers nor texts of the other columns, and their values."""

CONDITIONS: dict[str, Tree] = {
    "positive": Is("m", "gt", 0),
    "known": Neg(Is("a", "isnull", True)),
    "some": Is("c", "in", (0, 1)),
    "letter": Is("b", "exact", "a"),
    "either": Either((Is("o.x", "gte", 1), Is("a", "exact", 1))),
    "both": Both((Is("c", "gte", 0), Neg(Is("d", "startswith", "a")))),
    "warm": Is("f", "gt", 0.0),
    "true": Is("k", "exact", True),
    "late": Neg(Is("w", "range", (EARLY, TIMES[2], "[)"))),
}
"""The conditions of the partial indexes of the family, by name."""

STRONGER: dict[str, tuple[Tree, ...]] = {
    "positive": (Is("m", "exact", 2), Is("m", "gt", 1), Is("m", "in", (1, 3, LARGE))),
    "known": (Is("a", "gte", 0), Is("a", "ne", None), Is("a", "range", (-1, 2, "()"))),
    "some": (Is("c", "exact", 1), Is("c", "range", (0, 1)), Both((Is("c", "in", (0, 1, 2)), Is("c", "lt", 2)))),
    "letter": (Is("b", "in", ("a",)), Both((Is("b", "exact", "a"), Is("d", "gte", "b")))),
    "either": (Is("o.x", "exact", 2), Is("a", "in", (1,)), Both((Is("a", "exact", 1), Is("o.x", "lt", 1)))),
    "both": (Both((Is("c", "exact", 1), Is("d", "isnull", True))), Both((Is("c", "gt", 0), Is("d", "gte", "b")))),
    "warm": (Is("f", "exact", 2.0), Is("f", "range", (0.0, 2.0, "(]")), Is("f", "gte", 2.0)),
    "true": (Is("k", "gt", False), Both((Is("k", "exact", True), Is("m", "gt", 0)))),
    "late": (Is("w", "isnull", True), Is("w", "gte", TIMES[2]), Is("w", "lt", EARLY)),
}
"""Conditions that imply those, and say more."""


class Spec(NamedTuple):
    """One drawn index.

    Attributes:
        kind: ``index``, ``unique`` or ``aggregate``.
        columns: names, with ``-`` for descending; for a computed column the one name of its formula.
    """

    kind: str
    columns: tuple[str, ...]
    nulls: str = "distinct"
    where: str | None = None
    include: tuple[str, ...] = ()
    copies: bool = False
    computed: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.removeprefix("-") for column in self.columns)


class Declaration(NamedTuple):
    """A member of the family: its indexes, how texts are folded, and whether its primary key is composite."""

    specs: tuple[Spec, ...]
    fold_b: str | None = None
    fold_t: str | None = None
    composite: bool = False

    @property
    def index_names(self) -> tuple[str, ...]:
        """Return the names of the indexes of ``specs``."""
        return tuple(spec.columns[0] if spec.computed else f"i{at}" for at, spec in enumerate(self.specs))

    @property
    def columns(self) -> tuple[str, ...]:
        """Every name that may stand in a query of this member."""
        keys = ("group", "id", "pk") if self.composite else ("id", "pk")
        return (*SINGLE, *MANY, *keys, *self.computed)

    @property
    def computed(self) -> tuple[str, ...]:
        """The computed columns that this member declares."""
        return tuple(spec.names[0] for spec in self.specs if spec.computed)


FOLDS: dict[str | None, Callable[[str], str]] = {
    "casefold": str.casefold,
    "lower": str.lower,
    None: lambda text: text,
}


def to_q(tree: Tree) -> Q:
    """The tree as a user would write it."""
    match tree:
        case Both(parts):
            return _joined(parts, lambda left, right: left & right)
        case Either(parts):
            return _joined(parts, lambda left, right: left | right)
        case Neg(part):
            return ~to_q(part)  # type: ignore[return-value]
    name = tree.field.replace(".", "__") + ("__any" if tree.any else "")
    return Q(**{f"{name}__{tree.lookup}": tree.operand})


def _joined(parts: tuple[Tree, ...], join: Callable[[Any, Any], Any]) -> Any:
    first, *rest = map(to_q, parts)
    for part in rest:
        first = join(first, part)
    return first


def _index(name: str, spec: Spec) -> Index | AggregateIndex:
    where = None if spec.where is None else to_q(CONDITIONS[spec.where])
    if spec.kind == "aggregate":
        return AggregateIndex(*spec.columns, sums=("m", "e"), where=where, name=name)
    options: dict[str, Any] = {"name": name, "nulls": spec.nulls, "where": where, "include": spec.include}
    options |= {"store": "record"} if spec.copies else {}
    if spec.computed:
        formula = FORMULAS[spec.columns[0]]
        options |= {"key": formula.function, "version": 1}
        return (UniqueConstraint if spec.kind == "unique" else Index)(*formula.of, **options)
    return (UniqueConstraint if spec.kind == "unique" else Index)(*spec.columns, **options)


@cache
def model_of(declaration: Declaration) -> type[KvModel]:
    """The class of a member."""
    text, texts = str | None, list[str]
    annotations: dict[str, Any] = {
        "group": PrimaryKey[int] if declaration.composite else int,
        "id": PrimaryKey[int],
        "a": int | None,
        "b": Annotated[text, Indexed(key=FOLDS[declaration.fold_b])] if declaration.fold_b else text,
        "c": int,
        "d": text,
        "e": int | None,
        "f": float | None,
        "k": bool,
        "m": int,
        "w": datetime | None,
        "t": Annotated[texts, MultiIndexed(key=FOLDS[declaration.fold_t])] if declaration.fold_t else texts,
        "n": frozenset[int] | None,
        "o": Inner | None,
        "l": list[Inner],
    }

    def body(namespace: dict[str, Any]) -> None:
        indexes = tuple(map(_index, declaration.index_names, declaration.specs))
        namespace |= {"__annotations__": annotations, "__module__": __name__, "__qualname__": "Member"}
        # By its qualified name pydantic sees that the class is written inside of the model.
        namespace["Meta"] = type("Meta", (), {"indexes": indexes, "__qualname__": "Member.Meta"})

    return types.new_class("Member", (KvModel,), {"collection": "members"}, body)


class Names:
    """The meaning of names for the records of one member; see ``tests.query.oracle.Reader``."""

    def __init__(self, declaration: Declaration) -> None:
        self._folds = {"b": FOLDS[declaration.fold_b], "t": FOLDS[declaration.fold_t]}
        self.declaration = declaration

    def fold(self, name: str) -> Callable[[Any], Any]:
        return self._folds.get(name, lambda value: value)

    def many(self, name: str) -> bool:
        return name in SEVERAL_NUMBERS or name in SEVERAL_TEXTS

    def raw(self, record: Any, name: str) -> Any:
        """The value that a projection shows."""
        if name in FORMULAS:
            values = [getattr(record, field) for field in FORMULAS[name].of]
            return None if None in values else FORMULAS[name].function(*values)
        if name == "pk":
            return (record.group, record.id) if self.declaration.composite else record.id
        if name.startswith("l."):
            return [inner.x for inner in record.l]
        first, _, rest = name.partition(".")
        value = getattr(record, first)
        return getattr(value, rest) if rest and value is not None else value

    def value(self, record: Any, name: str) -> Any:
        value = self.raw(record, name)
        if value is None:
            return None
        fold = self.fold(name)
        return type(value)(map(fold, value)) if self.many(name) else fold(value)
