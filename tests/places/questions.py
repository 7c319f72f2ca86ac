"""Questions about places: each as a query, and as a filter, a sort and a slice over plain dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from examples.places import Place
from kvmodels import Q
from kvmodels.api._sync.queryset import QuerySet
from kvmodels.api._sync.repository import Repository

Row = dict[str, Any]


class Question(NamedTuple):
    """One question.

    Attributes:
        ask: the query.
        holds: whether a row belongs to the answer.
        order: key to sort the answer by; None: any order, and the answer is compared as a set.
        combine: how the plan has to put its scans together.
        indexes: some that it has to read.
    """

    ask: Callable[[Repository[Place]], QuerySet[Place]]
    holds: Callable[[Row], bool]
    order: Callable[[Row], Any] | None = None
    combine: str = "scan"
    indexes: tuple[str, ...] = ()


def folded(row: Row) -> set[str]:
    return {name.casefold() for name in row["names"]}


def largest(row: Row) -> tuple[int, int]:
    return (-row["population"], row["id"])


def region(row: Row) -> str | None:
    return row["admin"] and row["admin"]["region"]


def district(row: Row) -> str | None:
    return row["admin"] and row["admin"]["district"]


def between(low: int, value: int | None, high: int) -> bool:
    return value is not None and low <= value <= high


LATIN, GREEK, CYRILLIC, ARABIC, HAN = "İstanbul", "ΜΌΡΟΣ", "новоград", "مدينة", "北京"

QUESTIONS: dict[str, Question] = {
    "an alternate name in Greek capitals": Question(
        lambda places: places.filter(names__contains=GREEK),
        lambda row: GREEK.casefold() in folded(row),
    ),
    "an alternate name with a dotted capital I, largest first": Question(
        lambda places: places.filter(names__contains=LATIN).order_by("-population"),
        lambda row: LATIN.casefold() in folded(row),
        largest,
        indexes=("by_name",),
    ),
    "any of several alternate names": Question(
        lambda places: places.filter(names__contains_any=[CYRILLIC, HAN, ARABIC]),
        lambda row: bool(folded(row) & {CYRILLIC, HAN, ARABIC}),
    ),
    "any of several alternate names, largest first": Question(
        lambda places: places.filter(names__contains_any=[CYRILLIC, HAN, ARABIC]).order_by("-population"),
        lambda row: bool(folded(row) & {CYRILLIC, HAN, ARABIC}),
        largest,
        "merge",
        ("by_name",),
    ),
    "all of two alternate names": Question(
        lambda places: places.filter(names__contains_all=["กรุงเทพ", "เชียงใหม่"]),
        lambda row: folded(row) >= {"กรุงเทพ", "เชียงใหม่"},
        None,
        "intersect",
        ("names",),
    ),
    "the beginning of an alternate name in Cyrillic": Question(
        lambda places: places.filter(names__any__startswith="НОВО"),
        lambda row: any(name.startswith("ново") for name in folded(row)),
    ),
    "the beginning of an alternate name in Han, outside of the basic plane": Question(
        lambda places: places.filter(names__any__startswith="𠮷"),
        lambda row: any(name.startswith("𠮷") for name in folded(row)),
    ),
    "an alternate name between two others": Question(
        lambda places: places.filter(names__any__range=("दि", "दिल्लीपु")),
        lambda row: any("दि" <= name <= "दिल्लीपु" for name in folded(row)),
    ),
    "a name with a sharp s": Question(
        lambda places: places.filter(name="GROSS"),
        lambda row: row["name"].casefold() == "gross",
        lambda row: row["id"],
        indexes=("name",),
    ),
    "the beginning of a name in capital letters, in order": Question(
        lambda places: places.filter(name__startswith="MÜN").order_by("name"),
        lambda row: row["name"].casefold().startswith("mün"),
        lambda row: (row["name"].casefold(), row["id"]),
        indexes=("name",),
    ),
    "the first letter of a name": Question(
        lambda places: places.filter(initial="Ł"),
        lambda row: row["name"][:1].upper() == "Ł",
        lambda row: row["id"],
        indexes=("initial",),
    ),
    "a country, largest first": Question(
        lambda places: places.filter(country="AA").order_by("-population"),
        lambda row: row["country"] == "AA",
        largest,
        indexes=("country_population",),
    ),
    "a country, smallest first": Question(
        lambda places: places.filter(country="AD").order_by("population", "-pk"),
        lambda row: row["country"] == "AD",
        lambda row: (row["population"], -row["id"]),
        indexes=("country_population",),
    ),
    "a range of populations in a country": Question(
        lambda places: places.filter(country="AA", population__range=(1_000, 50_000)).order_by("-population"),
        lambda row: row["country"] == "AA" and 1_000 <= row["population"] <= 50_000,
        largest,
        indexes=("country_population",),
    ),
    "several countries, largest first": Question(
        lambda places: places.filter(country__in=["AA", "AD", "HS", "TT"]).order_by("-population"),
        lambda row: row["country"] in {"AA", "AD", "HS", "TT"},
        largest,
        "merge",
        ("country_population",),
    ),
    "several countries in the order of the index": Question(
        lambda places: places.filter(country__in=["BA", "AD"]).order_by("country", "-population"),
        lambda row: row["country"] in {"AD", "BA"},
        lambda row: (row["country"], *largest(row)),
        indexes=("country_population",),
    ),
    "a range of elevations": Question(
        lambda places: places.filter(elevation__gte=4_000, elevation__lt=4_100).order_by("-elevation"),
        lambda row: between(4_000, row["elevation"], 4_099),
        lambda row: (-(row["elevation"] or 0), -row["id"]),
        indexes=("elevation",),
    ),
    "inhabited towns, largest first": Question(
        lambda places: places.filter(kind="town", population__gt=0).order_by("-population"),
        lambda row: row["kind"] == "town" and row["population"] > 0,
        largest,
        indexes=("inhabited",),
    ),
    "large cities and towns, largest first": Question(
        lambda places: places.filter(kind__in=["city", "town"], population__gte=100_000).order_by("-population"),
        lambda row: row["kind"] in {"city", "town"} and row["population"] >= 100_000,
        largest,
        "merge",
        ("inhabited",),
    ),
    "a region of a country": Question(
        lambda places: places.filter(country="AA", admin__region="07"),
        lambda row: row["country"] == "AA" and region(row) == "07",
        indexes=("region",),
    ),
    "the places of a country without a district, one region after the other": Question(
        lambda places: places.filter(country="AD", admin__district=None).order_by("admin.region"),
        lambda row: row["country"] == "AD" and district(row) is None,
        lambda row: (region(row) is not None, region(row), row["id"]),
        indexes=("region",),
    ),
    "a time zone": Question(
        lambda places: places.filter(position__zone="Europe/Bern"),
        lambda row: row["position"]["zone"] == "Europe/Bern",
        lambda row: row["id"],
        indexes=("position_zone",),
    ),
    "no time zone": Question(
        lambda places: places.filter(position__zone=None),
        lambda row: row["position"]["zone"] is None,
        lambda row: row["id"],
        indexes=("position_zone",),
    ),
    "a name or a beginning of an alternate name or a height": Question(
        lambda places: places.filter(
            Q(name="gross") | Q(names__any__startswith="Πύλ") | Q(elevation__gt=4_980) | Q(pk__lt=3)
        ),
        lambda row: (
            row["name"].casefold() == "gross"
            or any(name.startswith("πύλ") for name in folded(row))
            or between(4_981, row["elevation"], 9_999)
            or row["id"] < 3
        ),
        None,
        "concatenate",
    ),
    "a country, but not its nature and not its nameless": Question(
        lambda places: places.filter(~Q(kind__in=["peak", "lake"]), country="AJ").exclude(names=[]),
        lambda row: row["country"] == "AJ" and row["kind"] not in {"peak", "lake"} and bool(row["names"]),
    ),
    "alternate names beside a country, tested on what was found": Question(
        lambda places: places.filter(names__contains="東京", country="AA"),
        lambda row: "東京" in folded(row) and row["country"] == "AA",
    ),
    "a few keys": Question(
        lambda places: places.filter(pk__in=[7, 3, 33, 9_999_999]).order_by("-pk"),
        lambda row: row["id"] in {3, 7, 33},
        lambda row: -row["id"],
    ),
}
