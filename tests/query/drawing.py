"""Draws members of the family, their records, and queries that are likely to meet their indexes."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.query.family import (
    CONDITIONS,
    FORMULAS,
    LARGE,
    MANY,
    NULLABLE,
    NUMBERS,
    OTHERS,
    SEVERAL_TEXTS,
    SINGLE,
    STRONGER,
    TEXTS,
    Declaration,
    Inner,
    Spec,
)
from tests.query.oracle import Both, Either, Is, Neg, Tree

numbers = st.integers(-2, 3)
texts = st.sampled_from(["a", "a\0", "a", "A", "", "ab", "AB", "b", "é", "É", "ß", "ss", "a b", "\uffff", "a\0b"])
inners = st.builds(Inner, x=st.integers(-1, 2), y=st.none() | texts)
BOUNDS = ("[]", "[)", "(]", "()")
NUMERIC_LOOKUPS = ("exact", "exact", "exact", "ne", "gt", "gte", "lt", "lte", "in", "in", "not_in", "range", "isnull")
TEXT_LOOKUPS = (*NUMERIC_LOOKUPS, "startswith", "contains")
ELEMENT_LOOKUPS = ("exact", "ne", "gt", "lte", "in", "not_in", "range")


def values_of(name: str) -> st.SearchStrategy[Any]:
    """Values of a column, or of an element of one."""
    if name in OTHERS:
        return st.sampled_from(OTHERS[name])
    return texts if name in TEXTS or name in SEVERAL_TEXTS else numbers


def is_single(name: str) -> bool:
    return name in NUMBERS or name in TEXTS or name in OTHERS


class Asked(NamedTuple):
    """A drawn query."""

    where: tuple[Tree, ...]
    order: tuple[str, ...]
    backwards: bool
    scanning: bool
    sorting: bool
    using: str | None


# --- declarations ------------------------------------------------------------------------------------------------


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """One index of any kind."""
    kind = draw(st.sampled_from(["index"] * 6 + ["unique"] * 2 + ["aggregate"] * 2))
    computed = kind != "aggregate" and draw(st.integers(0, 4)) == 0
    if computed:
        names = [draw(st.sampled_from(sorted(FORMULAS)))]
    else:
        names = draw(st.lists(st.sampled_from(SINGLE), min_size=1, max_size=3, unique=True))
        if draw(st.integers(0, 2)) == 0:
            names[draw(st.integers(0, len(names) - 1))] = draw(st.sampled_from(MANY))
    where = draw(st.none() | st.none() | st.none() | st.sampled_from(sorted(CONDITIONS)))
    if kind == "aggregate":
        return Spec(kind, tuple(names[:2]), where=where)
    signs = [draw(st.sampled_from(["", "", "-"])) for _ in names]
    columns = tuple(names) if computed else tuple(sign + name for sign, name in zip(signs, names, strict=True))
    nulls = draw(st.sampled_from(["distinct"] * 3 + ["skip"] + (["equal"] if kind == "unique" else [])))
    copies = draw(st.integers(0, 5)) == 0
    free = [name for name in ("a", "c", "m", "d") if name not in names]
    include = () if copies else tuple(draw(st.lists(st.sampled_from(free), max_size=2, unique=True)))
    return Spec(kind, columns, nulls, where, include, copies, computed)


@st.composite
def declarations(draw: st.DrawFn) -> Declaration:
    """A member of the family."""
    drawn = draw(st.lists(specs(), min_size=2, max_size=5))
    kept: dict[tuple[str, ...], Spec] = {}
    for spec in drawn:  # a formula is declared by one index
        kept.setdefault(spec.columns if spec.computed else (spec.kind, *spec.columns, str(len(kept))), spec)
    return Declaration(
        tuple(kept.values()),
        draw(st.sampled_from([None, "casefold", "lower"])),
        draw(st.sampled_from([None, "casefold"])),
        draw(st.booleans()),
    )


row: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    group=st.integers(0, 2),
    a=st.none() | numbers,
    b=st.none() | texts,
    c=st.integers(-1, 2),
    d=st.none() | texts,
    e=st.none() | numbers | st.sampled_from([LARGE, -LARGE]),
    f=st.none() | values_of("f"),
    k=st.booleans(),
    w=st.none() | values_of("w"),
    m=numbers | st.sampled_from([LARGE, -LARGE, 2**32, -(2**32)]),
    t=st.lists(texts, max_size=4),
    n=st.none() | st.frozensets(numbers, max_size=4),
    o=st.none() | inners,
    l=st.lists(inners, max_size=3),
)
rows: st.SearchStrategy[list[dict[str, Any]]] = st.lists(row, max_size=3) | st.lists(row, min_size=6, max_size=20)


# --- queries ------------------------------------------------------------------------------------------------------


@st.composite
def ranges(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> tuple[Any, ...]:
    """Both ends, and perhaps which of them belong to the range."""
    bounds = draw(st.sampled_from((*BOUNDS, "")))
    return (draw(values), draw(values), *([bounds] if bounds else []))


@st.composite
def comparisons(draw: st.DrawFn, name: str, composite: bool = False) -> Is:
    """One comparison of a name, of any kind that it has."""
    if name == "pk" and composite:
        return draw(composite_keys())
    if name != "pk" and not is_single(name):
        return draw(elements(name))
    values = values_of(name)
    lookup = draw(st.sampled_from(TEXT_LOOKUPS if name in TEXTS else NUMERIC_LOOKUPS))
    if lookup == "isnull":
        return Is(name, lookup, draw(st.booleans()))
    if lookup in ("in", "not_in"):
        return Is(name, lookup, tuple(draw(st.lists(st.none() | values, max_size=4))))
    if lookup == "range":
        return Is(name, lookup, draw(ranges(values)))
    if lookup in ("exact", "ne"):
        return Is(name, lookup, draw(st.none() | values))
    return Is(name, lookup, draw(values))


@st.composite
def composite_keys(draw: st.DrawFn) -> Is:
    """One comparison of the whole primary key."""
    keys = st.tuples(st.integers(0, 2), numbers)
    lookup = draw(st.sampled_from(["exact", "in", "in", "not_in"]))
    return Is("pk", lookup, draw(keys) if lookup == "exact" else tuple(draw(st.lists(keys, max_size=4))))


@st.composite
def wholes(draw: st.DrawFn, name: str) -> Is:
    """One comparison of a whole list or set."""
    kind = list if name == "t" else frozenset
    values = st.none() | st.lists(values_of(name), max_size=2).map(kind)
    lookup = draw(st.sampled_from(["exact", "ne", "in", "not_in"]))
    return Is(name, lookup, draw(values) if lookup in ("exact", "ne") else tuple(draw(st.lists(values, max_size=2))))


@st.composite
def elements(draw: st.DrawFn, name: str) -> Is:
    """One comparison of the elements of a field with several values."""
    values = values_of(name)
    lookup = draw(st.sampled_from(["contains", "contains_any", "contains_all", "isnull", "any", "any", "any"]))
    if name in ("t", "n") and draw(st.integers(0, 7)) == 0:
        return draw(wholes(name))
    if lookup == "isnull":
        return Is(name, lookup, draw(st.booleans()))
    if lookup == "contains":
        return Is(name, lookup, draw(values))
    if lookup != "any":
        return Is(name, lookup, tuple(draw(st.lists(values, max_size=3))))
    inner = draw(st.sampled_from((*ELEMENT_LOOKUPS, *(["startswith"] * 3 if name in SEVERAL_TEXTS else []))))
    if inner in ("in", "not_in"):
        return Is(name, inner, tuple(draw(st.lists(values, max_size=3))), any=True)
    if inner == "range":
        return Is(name, inner, draw(ranges(values)), any=True)
    return Is(name, inner, draw(values), any=True)


@st.composite
def trees(draw: st.DrawFn, declaration: Declaration, depth: int = 2) -> Tree:
    """Any combination of comparisons."""
    shape = draw(st.sampled_from(["is", "is", "both", "either", "neg"])) if depth else "is"
    if shape == "is":
        return draw(comparisons(draw(st.sampled_from(declaration.columns)), declaration.composite))
    if shape == "neg":
        return Neg(draw(trees(declaration, depth - 1)))
    parts = tuple(draw(st.lists(trees(declaration, depth - 1), min_size=2, max_size=3)))
    return Both(parts) if shape == "both" else Either(parts)


@st.composite
def equal(draw: st.DrawFn, name: str) -> Is:
    """The comparison that binds a column to one value, or to None."""
    if name in NULLABLE and draw(st.integers(0, 4)) == 0:
        return Is(name, "isnull", True)
    return Is(name, "exact" if is_single(name) else "contains", draw(values_of(name)))


@st.composite
def listed(draw: st.DrawFn, name: str) -> Is:
    """The comparison that binds a column to some values."""
    values = draw(st.lists(values_of(name), min_size=2, max_size=4))
    return Is(name, "in" if is_single(name) else "contains_any", tuple(values))


@st.composite
def along_an_index(draw: st.DrawFn, declaration: Declaration) -> tuple[tuple[Tree, ...], tuple[str, ...]]:
    """The first columns of an index bound to values, its condition implied, and perhaps the order of the rest."""
    spec = draw(st.sampled_from(declaration.specs))
    bound = draw(st.integers(0, len(spec.names)))
    where: list[Tree] = []
    for position, name in enumerate(spec.names[:bound]):
        several = draw(st.integers(0, 2)) == 0
        if position == bound - 1 and not several:
            where.append(draw(comparisons(name)))
        else:
            where.append(draw(listed(name) if several else equal(name)))
    if spec.kind == "aggregate":
        where = [draw(comparisons(name)) for name in spec.names if draw(st.booleans())]
    if spec.where is not None and draw(st.integers(0, 3)):
        where.append(draw(st.sampled_from((CONDITIONS[spec.where], *STRONGER[spec.where]))))
    if draw(st.integers(0, 3)) == 0:
        where.append(draw(trees(declaration, 1)))
    rest = tuple(column for column in spec.columns[bound:] if column.removeprefix("-") not in MANY)
    wanted = not spec.computed and len(rest) == len(spec.columns) - bound and draw(st.booleans())
    return tuple(where), rest if wanted else ()


@st.composite
def alternatives(draw: st.DrawFn, declaration: Declaration) -> tuple[tuple[Tree, ...], tuple[str, ...]]:
    """Any of several equalities, each on the first column of some index."""
    branches: dict[str, tuple[Tree, ...]] = {} if declaration.composite else {"id": ()}
    branches |= {"b": ()} if declaration.fold_b else {}
    branches |= {"t": ()} if declaration.fold_t else {}
    for spec in declaration.specs:
        if spec.kind != "aggregate":
            branches[spec.names[0]] = () if spec.where is None else (CONDITIONS[spec.where],)
    names = draw(st.lists(st.sampled_from(sorted(branches or ["c"])), min_size=2, max_size=3))
    options: list[Tree] = []
    for name in names:
        tested = [draw(trees(declaration, 1))] if draw(st.integers(0, 2)) == 0 else []
        options.append(Both((draw(equal(name) | listed(name) | comparisons(name)), *branches.get(name, ()), *tested)))
    return (Either(tuple(options)),), ()


@st.composite
def of_one_column(draw: st.DrawFn, declaration: Declaration) -> tuple[tuple[Tree, ...], tuple[str, ...]]:
    """Any combination of comparisons of the first column of an index, and perhaps its order."""
    spec = draw(st.sampled_from(declaration.specs))
    name = spec.names[0]

    def some() -> Tree:
        one: Tree = draw(comparisons(name))
        return Neg(one) if draw(st.integers(0, 3)) == 0 else one

    options = tuple(Both((some(), some())) if draw(st.integers(0, 3)) == 0 else some() for _ in range(3))
    tree: Tree = draw(st.sampled_from([Either(options), Either(options[:2]), Both(options[:2])]))
    where = (tree,) if spec.where is None else (tree, CONDITIONS[spec.where])
    wanted = name not in MANY and name != "words" and draw(st.booleans())
    return where, (spec.columns[0],) if wanted else ()


@st.composite
def crossings(draw: st.DrawFn, declaration: Declaration) -> tuple[tuple[Tree, ...], tuple[str, ...]]:
    """Equalities that no single index binds: on the only columns of two indexes, or on two elements of one field."""
    alone = [spec.names[0] for spec in declaration.specs if len(spec.names) == 1 and spec.kind != "aggregate"]
    alone += ["b"] if declaration.fold_b else []
    alone += ["t"] if declaration.fold_t else []
    if not alone:
        return (draw(equal("c")),), ()
    names = draw(st.lists(st.sampled_from(sorted(set(alone))), min_size=1, max_size=3, unique=True))
    several = [name for name in names if not is_single(name)]
    where: list[Tree] = [draw(equal(name)) for name in names]
    if several:
        values = st.lists(values_of(several[0]), min_size=2, max_size=2)
        where.append(Is(several[0], "contains_all", tuple(draw(values))))
    return tuple(where), ()


@st.composite
def queries(draw: st.DrawFn, declaration: Declaration) -> Asked:
    """A query of a member of the family."""
    recipe = draw(st.sampled_from(["tree", "along", "along", "along", "either", "either", "crossing", "column"]))
    order: tuple[str, ...] = ()
    if recipe == "tree":
        where: tuple[Tree, ...] = tuple(draw(st.lists(trees(declaration), max_size=2)))
        ordered = [name for name in (*SINGLE, "pk", *declaration.computed) if name != "words"]
        signs, names = st.sampled_from(["", "-"]), st.sampled_from(ordered)
        order = tuple(draw(st.lists(st.tuples(signs, names).map("".join), max_size=2, unique_by=lambda c: c[-1:])))
    elif recipe == "along":
        where, order = draw(along_an_index(declaration))
    elif recipe == "column":
        where, order = draw(of_one_column(declaration))
    else:
        where, order = draw(alternatives(declaration) if recipe == "either" else crossings(declaration))
        order = draw(st.sampled_from([(), (), ("pk",), ("-pk",)]))
    used = st.sampled_from(["pk", *declaration.index_names])
    return Asked(
        where,
        order,
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(0, 3)) == 0,
        draw(st.none() | st.none() | st.none() | used),
    )
