"""Texts of plans: eight shapes of queries word for word, as text and as the tree that rich draws."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from kvmodels import Database, Field, Index, Indexed, KvModel, MultiIndexed, PrimaryKey, Q, Unique
from kvmodels.ext.rich_tree import plan_tree


class Kind(StrEnum):
    CITY = "city"
    LAKE = "lake"


class Spot(KvModel, collection="spots"):
    id: PrimaryKey[int]
    code: Unique[str]
    kind: Indexed[Kind | None] = Field(default=None)
    country: Indexed[str]
    height: int = 0
    tags: MultiIndexed[list[str]] = Field(default_factory=list)

    class Meta:
        indexes = (Index("kind", "-height"), Index("country", "height", include=("code",), name="heights"))


@pytest.fixture(scope="module")
def spots():
    with Database("memory://", models=[Spot]) as db:
        db[Spot].bulk_create(
            Spot(
                id=number,
                code=f"c{number}",
                kind=(Kind.CITY, Kind.LAKE, None)[number % 3],
                country=("CH", "IT")[number % 2],
                height=number * 7 % 10,
                tags=["red", "rose"][: number % 3],
            )
            for number in range(12)
        )
        yield db[Spot]


TEXTS: list[tuple[Any, str]] = [
    (
        lambda q: q.filter(code="c3"),
        """Spot: 1 key of index code
  reads only  code = 'c3'
  in order    id
  reads       at most 2 rows and records
  took        1 row and 1 record in 1 batch, for 1 result""",
    ),
    (
        lambda q: q.all()[:5],
        """Spot: 1 range of the primary key
  in order    id
  reads       at most 5 records
  took        5 records in 1 batch, for 5 results""",
    ),
    (
        lambda q: q.filter(country="CH", code__ne="c4"),
        """Spot: 1 range of index country
  reads only  country = 'CH'
  then tests  code != 'c4'
  in order    id
  reads       an entry and a record for each row in the ranges
  took        6 rows and 6 records in 1 batch, for 5 results""",
    ),
    (
        lambda q: q.filter(country="CH").order_by("height").values("code"),
        """Spot: 1 range of index heights
  reads only  country = 'CH'
  in order    height, id
  reads       an entry for each result, and no record
  took        6 rows and 0 records in 1 batch, for 6 results""",
    ),
    (
        lambda q: q.filter(kind__in=[Kind.LAKE, None]).order_by("-height")[:3],
        """Spot: 2 scans merged in one order
  in order    -height, id
  reads       an entry and a record for each result
  took        6 rows and 3 records in 1 batch, for 3 results
    1 range of index kind_height
      reads only  kind is None
    1 range of index kind_height
      reads only  kind = Kind.LAKE""",
    ),
    (
        lambda q: q.filter(Q(country__gt="HU") | Q(tags__any__startswith="r")),
        """Spot: 2 scans, one after the other
  in order    not specified
  reads       an entry and a record for each row in the ranges
  took        18 rows and 14 records in 2 batches, for 10 results
    1 range of index country
      reads only  country > 'HU'
    1 range of index tags
      reads only  any tags startswith 'r'
      once each   a record with several entries here counts at the lowest""",
    ),
    (
        lambda q: q.filter(country="IT", tags__contains="rose"),
        """Spot: the primary keys that 2 scans have in common
  in order    id
  reads       an entry of each scan, and a record for each that all have
  took        10 rows and 2 records in 1 batch, for 2 results
    1 range of index country
      reads only  country = 'IT'
    1 range of index tags
      reads only  'rose' in tags""",
    ),
    (
        lambda q: q.filter(country="IT").order_by("code").sort_in_memory(limit=1_000)[:2],
        """Spot: 1 range of index country
  reads only  country = 'IT'
  sorts by    code, id, with at most 1,000 records in memory
  reads       an entry and a record for each row in the ranges
  took        6 rows and 6 records in 1 batch, for 2 results""",
    ),
    (
        lambda q: q.filter(height__gt=5).allow_scan(),
        """Spot: full scan of spots
  then tests  height > 5
  in order    id
  reads       every record
  took        12 records in 1 batch, for 5 results""",
    ),
    (
        lambda q: q.values_list("country", flat=True).distinct(),
        """Spot: 1 range of index country
  in order    country, id
  distinct    jumps from one value to the next
  reads       a few rows for each value
  took        5 rows and 0 records in 3 batches, for 2 results""",
    ),
    (
        lambda q: q.values_list("height", flat=True).distinct().sort_in_memory(limit=50),
        """Spot: 1 range of the primary key
  in order    id
  distinct    holds the different values in memory
  reads       a record for each row in the ranges
  took        12 records in 1 batch, for 10 results""",
    ),
    (lambda q: q.filter(country__in=[]), "Spot: nothing is read, because no record can match"),
]


@pytest.mark.parametrize(("ask", "text"), TEXTS)
def test_a_plan_that_was_run_tells_what_it_reads_and_what_it_took(spots: Any, ask: Any, text: str):
    assert str(ask(spots).explain(analyze=True)) == text
    planned = [line for line in text.splitlines() if not line.startswith("  took")]
    assert str(ask(spots).explain()).splitlines() == planned


@pytest.mark.parametrize(("ask", "text"), TEXTS)
def test_the_tree_that_rich_draws_says_the_same(spots: Any, ask: Any, text: str):
    drawn = StringIO()
    Console(file=drawn, width=200, color_system=None).print(plan_tree(ask(spots).explain(analyze=True)))
    told = [line.strip("│├└─ \n") for line in drawn.getvalue().splitlines()]
    assert [line.replace(":", "").split() for line in told] == [
        line.replace(":", "").split() for line in text.splitlines()
    ]


def test_a_value_that_looks_like_markup_is_drawn_as_it_is(spots: Any):
    drawn = StringIO()
    plan = spots.filter(code="[bold]x[/bold] [/]").explain()
    Console(file=drawn, width=200, color_system=None).print(plan_tree(plan))
    assert "code = '[bold]x[/bold] [/]'" in drawn.getvalue()


WITHOUT_RICH = """
import sys
sys.modules["rich"] = None
import kvmodels
try:
    import kvmodels.ext.rich_tree
except kvmodels.UnsupportedError as error:
    print(error.code, error.reason)
    print(error.hint)
"""


def test_without_rich_the_error_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT_RICH], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "KV908 rich",
        "Install it: pip install 'kvmodels[rich]'. Without it, print the plan itself.",
    ]
