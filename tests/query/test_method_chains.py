"""Methods of a query set in any order and number: each chain is answered, or refused with a hint, and never a surprise.

Whatever a chain means, its answers agree with each other: the number with the results, the plan that was run with the
rows that came out, and what was read with what was estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from random import Random
from typing import Any

import pytest
from pydantic import BaseModel

from kvmodels import (
    AggregateIndex,
    Avg,
    Count,
    Database,
    Field,
    Index,
    Indexed,
    KvModel,
    KvModelsError,
    Max,
    Min,
    MultiIndexed,
    PrimaryKey,
    Q,
    QuerySet,
    Sum,
    Unique,
)

SEED = 20260301
Step = Callable[[Any], Any]


class Shop(KvModel, collection="shops"):
    id: PrimaryKey[int]
    name: Unique[str]
    country: Indexed[str]
    staff: Indexed[int | None] = Field(default=None)
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    rooms: int = 0

    class Meta:
        indexes = (Index("country", "-rooms", name="roomy"), AggregateIndex("country", sums=("rooms",)))


class Card(BaseModel):
    country: str
    tags: list[str]


STEPS: dict[str, Step] = {
    "all()": lambda q: q.all(),
    "filter(country)": lambda q: q.filter(country="CH"),
    "filter(tags)": lambda q: q.filter(tags__contains="a"),
    "filter(or)": lambda q: q.filter(Q(country="CH") | Q(tags__any__gt="a")),
    "exclude(rooms)": lambda q: q.exclude(rooms=2),
    "order_by(-rooms)": lambda q: q.order_by("-rooms"),
    "order_by(country, -rooms)": lambda q: q.order_by("country", "-rooms"),
    "order_by(pk)": lambda q: q.order_by("pk"),
    "reverse()": lambda q: q.reverse(),
    "allow_scan()": lambda q: q.allow_scan(),
    "sort_in_memory()": lambda q: q.sort_in_memory(limit=50),
    "using_index(country)": lambda q: q.using_index("country"),
    "using_index(pk)": lambda q: q.using_index("pk"),
    "distinct()": lambda q: q.distinct(),
    "values(country)": lambda q: q.values("country"),
    "values()": lambda q: q.values(),
    "values_list(tags, pk)": lambda q: q.values_list("tags", "pk"),
    "values_list(country, flat)": lambda q: q.values_list("country", flat=True),
    "only(Card)": lambda q: q.only(Card),
    "[:3]": lambda q: q[:3],
    "[2:]": lambda q: q[2:],
    "[3:3]": lambda q: q[3:3],
}
ENDS: dict[str, Step] = {
    "last": lambda q: q.last(),
    "page": lambda q: q.page(size=2, after=q.page(size=2).next_cursor),
    "iterator": lambda q: list(q.iterator(batch_size=2)),
    "aggregate": lambda q: q.aggregate(Count(), Sum("rooms"), Min("staff"), Max("country")),
    "explain_aggregate": lambda q: str(q.explain_aggregate(Count())),
    "group_by": lambda q: q.group_by("country").aggregate(Count()).to_list(),
    "group_by several": lambda q: q.group_by("tags").aggregate(Sum("rooms")).to_list(),
    "group plan": lambda q: str(q.group_by("country").aggregate(Count(), Avg("staff")).explain()),
    "position": lambda q: q[1],
    "repr": repr,
}


@pytest.fixture(scope="module")
def shops() -> Iterator[QuerySet[Shop]]:
    with Database("memory://", models=[Shop]) as db:
        db[Shop].bulk_create(
            Shop(
                id=number,
                name=f"n{number}",
                country=("IT", "CH")[number % 2],
                staff=number if number % 3 else None,
                tags=["a", "b"][: number % 3],
                rooms=number % 4,
            )
            for number in range(12)
        )
        yield db[Shop]


def chains() -> list[tuple[str, ...]]:
    random = Random(SEED)
    longer = [tuple(random.sample(list(STEPS), length)) for length in (3, 4, 5) for _ in range(80)]
    return [chain for length in range(3) for chain in permutations(STEPS, length)] + longer


def answered(shops: Any, chain: tuple[str, ...], end: Step) -> tuple[bool, Any]:
    """Whether a chain has an answer, and which; a refusal says what to do."""
    try:
        query = shops
        for name in chain:
            query = STEPS[name](query)
        return True, end(query)
    except Shop.DoesNotExist:
        return False, None
    except KvModelsError as error:
        refusal = error
    assert refusal.hint, f"{chain}: {refusal}"
    return False, None


@pytest.mark.parametrize("end", ENDS)
def test_every_chain_is_answered_or_refused_with_a_hint(shops: Any, end: str):
    kinds = [answered(shops, chain, ENDS[end])[0] for chain in chains()]
    assert kinds.count(True) > 20


def test_the_answers_to_a_chain_agree(shops: Any):
    compared = 0
    for chain in chains():
        held, results = answered(shops, chain, lambda query: query.to_list())
        planned, plan = answered(shops, chain, lambda query: query.explain(analyze=True))
        assert planned is held, chain
        if not held:
            continue
        compared += 1
        _, (count, exists, first, slice_) = answered(
            shops, chain, lambda query: (query.count(), query.exists(), query.first(), query[:2].to_list())
        )
        assert (count, exists, first) == (len(results), bool(results), results[0] if results else None), chain
        assert slice_ == results[:2], chain
        assert plan.analysis.results == len(results), chain
        assert plan.estimated_reads is None or plan.analysis.reads <= plan.estimated_reads, chain
    print(f"seed {SEED}: {compared} chains with an answer")
    assert compared > 150
