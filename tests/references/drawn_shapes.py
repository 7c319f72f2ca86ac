"""Draws queries of every shape through foreign keys, and compares each with a Python program over all records.

Rules of this module: a shape is a function of a drawn query, in ``SHAPES`` with its weight; it asserts that the answer
equals that of ``Records``. A condition or an order of a new kind is added where the others are drawn. Results are in
the order that ``explain().order`` states, ties included; without one they are compared as a set.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kvmodels import Count, Exists, F, Max, NoUsableIndexError, Q, QueryPlan, Sum
from tests.references.drawn_models import (
    BATCH,
    LINKED,
    MODELS,
    Compared,
    Condition,
    Crate,
    Depot,
    Is,
    Joined,
    Keeper,
    Linked,
    Neg,
    OfQuery,
    Records,
    drawn_crate,
)

AGES, NICKS, NAMES = [0, 1, 2, 3], ["a", "b", None], ["p", "q", "r"]
EMAILS = [f"k{n}@x" for n in range(5)]
NUMBERS = [0, 1, 2, 3, 5, 10]
KEYS_OF_TARGETS = [0, 1, 2, 4, None]

PATHS: Final[dict[str, dict[str, list[Any]]]] = {
    "Crate": {
        "depot__name": NAMES,
        "depot__owner__email": EMAILS,
        "depot__owner__boss__age": AGES,
        "depot__lead__nick": NICKS,
        "depot__owner": KEYS_OF_TARGETS,
        "depot__id": [0, 3, 5],
        "spare__name": NAMES,
        "spare_id__lead_id__age": AGES,
        "keeper__age": AGES,
        "keeper__boss__nick": NICKS,
        "keeper__boss__boss__email": EMAILS,
    },
    "Depot": {"owner__email": EMAILS, "owner__boss__age": AGES, "lead__nick": NICKS, "lead_id__boss__boss__age": AGES},
    "Keeper": {"boss__age": AGES, "boss__boss__nick": NICKS, "boss__boss__boss__email": EMAILS},
}
OWN: Final[dict[str, dict[str, list[Any]]]] = {
    "Crate": {
        "status": ["up", "down", "new"],
        "created": [2, 9, 15],
        "id": [1, 7, 20],
        "depot": KEYS_OF_TARGETS,
        "keeper": KEYS_OF_TARGETS,
        "most": [0, 2, 4, None],
    },
    "Depot": {"name": NAMES, "id": [1, 4], "owner": KEYS_OF_TARGETS, "lead_id": [0, 1, 2]},
    "Keeper": {"age": AGES, "id": [1, 3], "nick": NICKS, "boss": KEYS_OF_TARGETS, "email": EMAILS},
}
SEMI_JOINS: Final[dict[str, list[tuple[str, str, str | None]]]] = {
    "Crate": [
        ("depot", "Depot", None),
        ("spare_id", "Depot", None),
        ("keeper", "Keeper", None),
        ("keeper", "Depot", "owner"),
    ],
    "Depot": [
        ("owner", "Keeper", None),
        ("id", "Crate", "depot"),
        ("id", "Crate", "spare_id"),
        ("lead_id", "Crate", "keeper"),
    ],
    "Keeper": [
        ("boss", "Keeper", None),
        ("id", "Keeper", "boss"),
        ("id", "Depot", "owner"),
        ("id", "Depot", "lead_id"),
        ("id", "Crate", "keeper"),
    ],
}
"""The field, the model of the other query, and the foreign key whose values it has; None for the keys of targets."""

RELATIONS: Final[dict[str, str]] = {"Depot": "guards", "Keeper": "guarded"}
"""The many-to-many relation of a model, by its name in filters."""

TARGETS: Final[dict[str, dict[str, Any]]] = {
    "Crate": {
        "depot": Crate.depot,
        "spare_id": Crate.spare_id,
        "keeper": Crate.keeper,
        "depot__owner": Crate.depot.to(Depot.owner),
        "depot__lead_id__boss": Crate.depot.to(Depot.lead_id).to(Keeper.boss),
        "keeper__boss": Crate.keeper.to(Keeper.boss),
    },
    "Depot": {"owner": Depot.owner, "lead_id": Depot.lead_id, "owner__boss": Depot.owner.to(Keeper.boss)},
    "Keeper": {"boss": Keeper.boss, "boss__boss": Keeper.boss.to(Keeper.boss)},
}

Q_OF: Final[dict[str, Condition]] = {
    "status": Is("status", "exact", "up"),
    "statuses": Is("status", "in", ["up", "new"]),
    "created": Is("created", "gte", 9),
}
COUNTS: Final[dict[str, list[tuple[str, str, Any, Condition | None]]]] = {
    "Crate": [],
    "Depot": [
        ("Crate", "depot", Crate.depot, None),
        ("Crate", "depot", Crate.depot, Q_OF["status"]),
        ("Crate", "depot", Crate.depot, Q_OF["created"]),
        ("Crate", "depot", Crate.depot, Joined((Q_OF["status"], Q_OF["created"]), is_or=False)),
        ("Crate", "spare_id", Crate.spare_id, None),
    ],
    "Keeper": [
        ("Crate", "keeper", Crate.keeper, None),
        ("Crate", "keeper", Crate.keeper, Q_OF["statuses"]),
        ("Depot", "owner", Depot.owner, None),
        ("Depot", "lead_id", Depot.lead_id, None),
        ("Keeper", "boss", Keeper.boss, None),
    ],
}
"""For each model the foreign keys to it and the conditions for which an index has the numbers."""

REFERRER_ORDERS: Final[dict[str, list[tuple[str, ...]]]] = {
    "Crate": [(), ("-created",), ("-created", "id"), ("status", "created"), ("size", "id"), ("id",)],
    "Depot": [(), ("id",), ("name",)],
    "Keeper": [(), ("id",), ("age",)],
}


@dataclass
class DrawnQuery:
    """A query that is drawn: of the library, and of the program over all records.

    Attributes:
        repositories: a database or a transaction.
        records: all records, as the Python program has them.
        model: the name of the model.
        where: the conditions, all of which hold.
        order: the columns of ``order_by``.
        query: the query set, with the permissions that its refusal named.
        expected: the results, in the stated order if there is one.
        is_ordered: whether an order is stated.
    """

    repositories: Any
    records: Records
    model: str
    where: tuple[Condition, ...]
    order: list[str]
    query: Any
    expected: list[Any]
    is_ordered: bool

    @property
    def batches(self) -> dict[str, int]:
        """The options of a bulk write: a transaction has no batches."""
        return {} if hasattr(self.repositories, "unchecked") else {"batch_size": BATCH}

    def with_query(self, query: Any, plan: QueryPlan | None = None) -> DrawnQuery:
        """Return the same with another query for these results, whose plan may state other ties."""
        stated = (plan or query.explain()).order
        return replace(
            self,
            query=query,
            expected=self.records.in_order(self.expected, [*self.order, *stated]),
            is_ordered=bool(stated),
        )

    def same(self, found: list[Any], expected: list[Any]) -> None:
        """Assert that results are equal, in the order if there is one."""
        if not self.is_ordered:
            found, expected = sorted(found, key=repr), sorted(expected, key=repr)
        assert found == expected


# --- conditions ---------------------------------------------------------------------------------------------------


def drawn_is(path: str, operands: list[Any], drawn: random.Random) -> Is:
    lookup = drawn.choice(["exact", "exact", "ne", "in", "not_in", "isnull", "gte", "lt"])
    operand = drawn.choice(operands)
    if lookup == "isnull":
        operand = drawn.random() < 0.5
    elif lookup in ("in", "not_in"):
        operand = drawn.sample(operands, drawn.randrange(1, len(operands)))
    elif lookup in ("gte", "lt") and operand is None:
        lookup = "exact"
    return Is(path, lookup, operand)


def drawn_condition(model: str, drawn: random.Random, depth: int = 2) -> Condition:
    kind = drawn.random()
    if depth and kind < 0.14:
        parts = tuple(drawn_condition(model, drawn, depth - 1) for _ in range(2))
        return Joined(parts, is_or=drawn.random() < 0.7)
    if depth and kind < 0.28:
        return Neg(drawn_condition(model, drawn, depth - 1))
    if depth == 2 and kind < 0.4:
        field, other, selected = drawn.choice(SEMI_JOINS[model])
        where = tuple(drawn_condition(other, drawn, 0) for _ in range(drawn.randrange(1, 3)))
        return OfQuery(field, other, where, selected, is_negated=drawn.random() < 0.25)
    if depth == 2 and kind < 0.5 and model in RELATIONS:  # at most one in a call of filter()
        return drawn_link(RELATIONS[model], drawn)
    if model == "Crate" and kind < 0.47:
        lookup = drawn.choice(["exact", "ne", "lt", "lte", "gt", "gte"])
        return Compared(*drawn.choice([("size", lookup, "most"), ("created", lookup, "size")]))
    path, operands = drawn.choice(list((PATHS if drawn.random() < 0.6 else OWN)[model].items()))
    return drawn_is(path, operands, drawn)


def drawn_link(relation: str, drawn: random.Random) -> Linked:
    """Return conditions on the other side of a relation; a path there has at most two foreign keys."""
    other = LINKED[relation]
    paths = {**OWN[other], **{path: operands for path, operands in PATHS[other].items() if path.count("__") < 3}}
    parts = [drawn_is(*drawn.choice(list(paths.items())), drawn) for _ in range(drawn.randrange(1, 3))]
    return Linked(relation, tuple(parts), is_negated=drawn.random() < 0.3)


def q_of(condition: Condition, repositories: Any) -> Any:
    """Return a condition as the library takes it."""
    if isinstance(condition, Is):
        return Q(**{f"{condition.path}__{condition.lookup}": condition.operand})
    if isinstance(condition, Compared):
        return Q(**{f"{condition.field}__{condition.lookup}": F(condition.other)})
    if isinstance(condition, OfQuery):
        inner = repositories[model_of(condition.model)].filter(*(q_of(one, repositories) for one in condition.where))
        inner, _ = permitted(inner)
        if condition.selected is not None:
            inner = inner.values_list(condition.selected, flat=True)
        return Q(**{f"{condition.field}__{'not_in' if condition.is_negated else 'in'}": inner})
    if isinstance(condition, Linked):
        found: Any = Q()
        for one in condition.where:
            found = found & Q(**{f"{condition.relation}__{one.path}__{one.lookup}": one.operand})
        return ~found if condition.is_negated else found
    if isinstance(condition, Neg):
        return ~q_of(condition.inner, repositories)
    first, *others = (q_of(part, repositories) for part in condition.parts)
    for one in others:
        first = (first | one) if condition.is_or else (first & one)
    return first


def model_of(name: str) -> type[Any]:
    return next(model for model in MODELS if model.__name__ == name)


def permitted(query: Any) -> tuple[Any, QueryPlan]:
    """Return a query with the permissions that its refusal names, and its plan; an index is named for orders alone."""
    named = ""
    for _ in range(3):
        try:
            return query, query.explain()
        except NoUsableIndexError as error:
            named = str(error)
        is_index_alone = "allow_scan()" not in named and "sort_in_memory" not in named
        assert not is_index_alone or "Index(" in named, named
        if "allow_scan()" in named or is_index_alone:
            query = query.allow_scan()
        if "sort_in_memory" in named or is_index_alone:
            query = query.sort_in_memory()
    raise AssertionError(named)


# --- queries ------------------------------------------------------------------------------------------------------


def drawn_order(model: str, drawn: random.Random) -> list[str]:
    if drawn.random() < 0.3:
        return []
    columns = drawn.sample([*OWN[model], *PATHS[model]], drawn.randrange(1, 3))
    return [f"{drawn.choice(['', '-'])}{column}" for column in columns]


def drawn_query(repositories: Any, records: Records, drawn: random.Random, model: str | None = None) -> DrawnQuery:
    """Draw a query of any shape's filter and order."""
    name = model or drawn.choice(["Crate", "Crate", "Depot", "Keeper"])
    where = tuple(drawn_condition(name, drawn) for _ in range(drawn.randrange(4)))
    order = drawn_order(name, drawn)
    query = repositories[model_of(name)].all()
    for condition in where:
        q = q_of(condition, repositories)
        query = query.exclude(~q) if drawn.random() < 0.1 else query.filter(q)
    query, plan = permitted(query.order_by(*order) if order else query)
    found = records.matching(name, where)
    return DrawnQuery(repositories, records, name, where, order, query, found, is_ordered=False).with_query(query, plan)


def lists(one: DrawnQuery, drawn: random.Random) -> None:
    way = drawn.randrange(3)
    if way == 0 and one.is_ordered:
        assert one.query.reverse().to_list() == one.expected[::-1]
    elif way == 1:
        one.same(list(one.query.iterator(batch_size=drawn.randrange(2, 8))), one.expected)
    else:
        one.same(one.query.to_list(), one.expected)


def slices(one: DrawnQuery, drawn: random.Random) -> None:
    start, stop = drawn.randrange(4), drawn.randrange(4, 10)
    part = one.records.part(one.expected, start, stop)
    found = one.query[start:stop].to_list()
    if one.is_ordered:
        assert found == part
        assert (one.query.first(), one.query.last()) == (
            (one.expected[0], one.expected[-1]) if one.expected else (None, None)
        )
    else:
        assert len(found) == len(part)
        assert all(record in one.expected for record in found)


def pages(one: DrawnQuery, drawn: random.Random) -> None:
    one.same(pages_of(one.query, drawn.randrange(2, 9)), one.expected)


def pages_of(query: Any, size: int) -> list[Any]:
    """Return the items of all pages, and see that the second page leads back to the first."""
    read = [query.page(size=size)]
    while read[-1].next_cursor is not None:
        read.append(query.page(size=size, after=read[-1].next_cursor))
        if len(read) == 2:
            assert query.page(size=size, before=read[1].previous_cursor).items == read[0].items
    return [item for page in read for item in page.items]


def values(one: DrawnQuery, drawn: random.Random) -> None:
    names = drawn.sample([*PATHS[one.model], *OWN[one.model]], drawn.randrange(1, 4))
    is_dict = drawn.random() < 0.5
    one = one.with_query(one.query.values(*names) if is_dict else one.query.values_list(*names))
    rows = [{name: one.records.value(record, name) for name in names} for record in one.expected]
    if is_dict:
        one.same(one.query.to_list(), rows)
    else:
        one.same(pages_of(one.query, 7), [tuple(row.values()) for row in rows])


def related(one: DrawnQuery, drawn: random.Random) -> None:
    keys = drawn.sample(list(TARGETS[one.model]), drawn.randrange(1, len(TARGETS[one.model]) + 1))[:4]
    one = one.with_query(one.query.with_related(*(TARGETS[one.model][key] for key in keys)))
    expected = [(record, *(one.records.target(record, key) for key in keys)) for record in one.expected]
    one.same(one.query.to_list() if drawn.random() < 0.5 else pages_of(one.query, 6), expected)


def numbers(one: DrawnQuery, drawn: random.Random) -> None:
    """Compare ``with_counts``; crates have no referring records, so keepers or depots are counted."""
    if not COUNTS[one.model]:
        one = drawn_query(one.repositories, one.records, drawn, drawn.choice(["Depot", "Keeper"]))
    named: dict[str, Any] = {}
    expected: list[dict[str, Any]] = [{} for _ in one.expected]
    for at, (model, field, key, condition) in enumerate(drawn.sample(COUNTS[one.model], 2)):
        options = {} if condition is None else {"filter": q_of(condition, one.repositories)}
        kinds = [Count, Exists, Sum] if (model, field) == ("Crate", "keeper") else [Count, Exists]
        kind = drawn.choice(kinds)
        named[f"n{at}"] = Sum("size", key=key, **options) if kind is Sum else kind(key, **options)
        for row, record in zip(expected, one.expected, strict=True):
            found = one.records.referring(record, model, field, [] if condition is None else [condition])
            of_kind = {Count: len(found), Exists: bool(found), Sum: None}
            row[f"n{at}"] = one.records.total(found, "size") if kind is Sum else of_kind[kind]
    query = one.query.with_counts(**named)
    found = query.to_list() if drawn.random() < 0.5 else pages_of(query, 4)
    one.same(found, list(zip(one.expected, expected, strict=True)))


def referrers(one: DrawnQuery, drawn: random.Random) -> None:
    """Compare ``fetch_referrers`` of the results; an order that no index has must be refused by its name."""
    if not COUNTS[one.model]:
        one = drawn_query(one.repositories, one.records, drawn, drawn.choice(["Depot", "Keeper"]))
    model, field, key, _ = drawn.choice(COUNTS[one.model])
    order, limit = drawn.choice(REFERRER_ORDERS[model]), drawn.choice([1, 3, 50])
    condition = drawn_condition(model, drawn, 1) if drawn.random() < 0.6 else None
    options: dict[str, Any] = {} if condition is None else {"filter": q_of(condition, one.repositories)}
    own = one.repositories[model_of(one.model)]
    try:
        found = own.fetch_referrers(one.expected, key, order_by=order, limit=limit, **options)
    except NoUsableIndexError as error:
        if f'Index("{field}"' in str(error) or "allow_scan" in str(error):
            return
        raise
    where = [] if condition is None else [condition]
    for record in one.expected:
        of_one = one.records.referring(record, model, field, where)
        ordered = one.records.in_order(of_one, [*order, *stated_order(one, model, {field: record.id}, order, options)])
        assert found[record.id] == one.records.first_of_each(ordered, limit)
    assert len(found) == len(one.expected)


def links(one: DrawnQuery, drawn: random.Random) -> None:
    """Compare the links of the results, and a filter by links; crates have none, so depots or keepers are drawn."""
    if one.model not in RELATIONS:
        one = drawn_query(one.repositories, one.records, drawn, drawn.choice(["Depot", "Keeper"]))
    guards = one.repositories[Depot].links(Depot.guards)
    found = (guards.fetch if one.model == "Depot" else guards.fetch_owners)(one.expected)
    assert found == {record.id: one.records.linked(record, RELATIONS[one.model]) for record in one.expected}
    condition = drawn_link(RELATIONS[one.model], drawn)
    query, _ = permitted(one.repositories[model_of(one.model)].filter(q_of(condition, one.repositories)))
    assert query.count() == len(one.records.matching(one.model, [condition]))


def stated_order(
    one: DrawnQuery, model: str, of_one: dict[str, Any], order: tuple[str, ...], options: dict[str, Any]
) -> tuple[str, ...]:
    """Return the order of the records that refer to one target, as the query of this target states it."""
    query = one.repositories[model_of(model)].filter(*options.values(), **of_one).order_by(*(order or ("id",)))
    return permitted(query)[1].order


def totals(one: DrawnQuery, drawn: random.Random) -> None:
    assert one.query.count() == len(one.expected)
    assert one.query.exists() is bool(one.expected)
    if one.model != "Keeper":
        field = "created" if one.model == "Crate" else "lead_id"
        found = [getattr(record, field) for record in one.expected]
        assert one.query.aggregate(n=Count(), most=Max(field)) == {"n": len(found), "most": max(found, default=None)}


def groups(one: DrawnQuery, drawn: random.Random) -> None:
    """Compare groups and distinct values, whose query has no order of its own."""
    field = {"Crate": drawn.choice(["status", "depot"]), "Depot": "name", "Keeper": "age"}[one.model]
    query = one.repositories[model_of(one.model)].all()
    for part in one.where:  # one call each: conditions of one call hold for the same link
        query = query.filter(q_of(part, one.repositories))
    query = permitted(query)[0].sort_in_memory()
    expected = Counter(getattr(record, field) for record in one.expected)
    rows = query.group_by(field).aggregate(n=Count())
    assert {row[field]: row["n"] for row in rows} == dict(expected)
    assert sorted(query.values_list(field, flat=True).distinct(), key=one.records.rank) == sorted(
        expected, key=one.records.rank
    )


def updates(one: DrawnQuery, drawn: random.Random) -> None:
    """Compare an update of the results; keepers and depots, which others' conditions are about, keep their values."""
    changes: list[tuple[dict[str, Any], Callable[[Any], dict[str, Any]]]] = [
        ({"note": "changed"}, lambda record: {"note": "changed"})
    ]
    if one.model == "Crate":
        changes.append(({"size": F("size") + 1}, lambda record: {"size": record.size + 1}))
        changes.append(({"status": "new", "depot": 3}, lambda record: {"status": "new", "depot": 3}))
    given, changed = drawn.choice(changes)
    query, chosen = one.query, one.expected
    if one.is_ordered and drawn.random() < 0.3:
        query, chosen = query[:4], one.records.part(chosen, 0, 4)
    done = query.update(**one.batches, **given)
    assert (done.matched, done.written) == (len(chosen), len(chosen))
    for record in chosen:
        rows = one.records.rows[one.model]
        rows[rows.index(record)] = record.model_copy(update=changed(record))
    assert stored(one, one.model) == one.records.rows[one.model]


def stored(one: DrawnQuery, model: str) -> list[Any]:
    found: list[Any] = one.repositories[model_of(model)].order_by("id").to_list()
    return found


def removals(one: DrawnQuery, drawn: random.Random) -> None:
    """Compare a removal of crates, and store others with their keys."""
    if one.model != "Crate":
        one = drawn_query(one.repositories, one.records, drawn, "Crate")
    assert one.query.delete(**one.batches).written == len(one.expected)
    rows = [record for record in one.records.rows["Crate"] if record not in one.expected]
    assert stored(one, "Crate") == rows
    others = [drawn_crate(record.id, drawn) for record in one.expected]
    one.repositories[Crate].bulk_create(others, **one.batches)
    one.records.rows["Crate"] = sorted([*rows, *others], key=lambda record: record.id)


Shape = Callable[[DrawnQuery, random.Random], None]
SHAPES: Final[dict[Shape, int]] = {
    lists: 4,
    slices: 3,
    pages: 4,
    values: 4,
    related: 4,
    numbers: 4,
    referrers: 4,
    links: 2,
    totals: 3,
    groups: 2,
    updates: 1,
    removals: 1,
}
"""Each shape, with its weight in the draws."""


def check_one(repositories: Any, records: Records, drawn: random.Random, shapes: Mapping[Shape, int] = SHAPES) -> str:
    """Draw a query and a shape, compare the answers, and return the name of the shape."""
    one = drawn_query(repositories, records, drawn)
    (shape,) = drawn.choices(list(shapes), list(shapes.values()))
    try:
        shape(one, drawn)
    except AssertionError as error:
        error.add_note(f"{shape.__name__} of {one.model}, {one.where}\n{one.query.explain()}")
        raise
    return shape.__name__
