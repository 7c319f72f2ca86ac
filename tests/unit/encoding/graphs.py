"""Values for round trips: trees of everything that can be stored, and graphs with shared containers and cycles."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from kvmodels.core.values import UNDEFINED

MILLISECOND = timedelta(milliseconds=1)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
moments = st.builds(
    lambda milliseconds, hours: (datetime(1970, 1, 2, tzinfo=UTC) + milliseconds * MILLISECOND).astimezone(
        timezone(timedelta(hours=hours))
    ),
    st.integers(-60_000_000_000_000, 250_000_000_000_000),
    st.integers(-12, 12),
)
patterns = st.builds(
    re.compile, st.sampled_from(["", "a+b", r"\d+|[^x-z]\-", "日本"]), st.sampled_from([0, re.I, re.M | re.S])
)
atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    st.sampled_from([-0.0, 1.0, 2.0**31, 2.0**53, 2.0**53 - 1]),
    text,
    st.binary(max_size=8),
    st.just(UNDEFINED),
    moments,
    patterns,
)
members = st.recursive(
    st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), text, st.binary(max_size=4), moments),
    lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.lists(inner, max_size=3).map(frozenset)),
    max_leaves=5,
)
sets = st.one_of(st.sets(members, max_size=4), st.frozensets(members, max_size=4))
trees = st.recursive(
    st.one_of(atoms, sets),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(text, inner, max_size=4),
        st.dictionaries(members, inner, max_size=4),
    ),
    max_leaves=15,
)


@st.composite
def graphs(draw: st.DrawFn) -> Any:
    """Some lists, dicts and sets, whose elements are values or again these, themselves included."""
    kinds = draw(st.lists(st.sampled_from([list, dict, set]), min_size=1, max_size=6))
    nodes: list[Any] = [kind() for kind in kinds]
    for node in nodes:
        if isinstance(node, set):
            node.update(draw(st.lists(members, max_size=3)))
            continue
        inner = st.one_of(atoms, st.sampled_from(nodes))
        if isinstance(node, list):
            node.extend(draw(st.lists(inner, max_size=4)))
        else:
            node.update(draw(st.dictionaries(st.one_of(text, members), inner, max_size=4)))
    return nodes[0]


def isomorphic(left: Any, right: Any) -> bool:
    """Whether two values have the same types, the same content and the same sharing; takes cycles and any depth."""
    pairs: dict[int, int] = {}
    back: dict[int, int] = {}
    pending = [(left, right)]
    while pending:
        one, other = pending.pop()
        if type(one) is not type(other):
            return False
        if type(one) in (list, dict, set):
            if id(one) in pairs or id(other) in back:
                if pairs.get(id(one)) != id(other) or back.get(id(other)) != id(one):
                    return False
                continue
            pairs[id(one)], back[id(other)] = id(other), id(one)
        if isinstance(one, list):
            if len(one) != len(other):
                return False
            pending.extend(zip(one, other, strict=True))
        elif isinstance(one, dict):
            keys = {typed(key): key for key in other}
            if one.keys() != other.keys() or any(typed(key) not in keys for key in one):
                return False
            pending.extend((item, other[key]) for key, item in one.items())
        elif typed(one) != typed(other):
            return False
    return True


def typed(value: Any) -> Any:
    """A value that equals another only if both are the same thing: 1 is not 1.0, and 0.0 is not -0.0."""
    if isinstance(value, tuple):
        return tuple, tuple(map(typed, value))
    if isinstance(value, set | frozenset):
        return type(value), frozenset(map(typed, value))
    if isinstance(value, float):
        return float, str(value), math.copysign(1, value) if value == value else 0
    if isinstance(value, datetime):
        return datetime, value.replace(tzinfo=None) - (value.utcoffset() or timedelta(0))
    return type(value), value
