"""34,000 places in many scripts: every question is answered by an index, and as Python answers it.

A tenth of the places is asked question by question, in memory and in files; the long version asks all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pytest

from examples import places as example
from examples.places import COUNT, KINDS, MOST_NAMES, Place, load
from kvmodels import Avg, Count, Database, Max, Min, NoUsableIndexError, Sum
from kvmodels.api._sync.repository import Repository
from tests.places.questions import QUESTIONS, Question, Row, folded, largest
from tests.worlds import MEMORY

WALKED = 1_000
"""Answers that are larger are walked page by page in the smaller collection only."""


class Loaded:
    """The places as rows and as records; ``places`` is the repository."""

    def __init__(self, db: Database, rows: list[Row]) -> None:
        self.db = db
        self.rows = rows
        self.places: Repository[Place] = db[Place]

    def expected(self, question: Question) -> list[int]:
        found = [row for row in self.rows if question.holds(row)]
        return [row["id"] for row in sorted(found, key=question.order or (lambda row: row["id"]))]


@contextmanager
def opened(url: str, count: int) -> Iterator[Loaded]:
    with Database(url, models=[Place], durability="relaxed") as db:
        load(db[Place], count)
        yield Loaded(db, list(example.rows(count)))


@pytest.fixture(scope="module", params=MEMORY)
def loaded(request, tmp_path_factory) -> Iterator[Loaded]:
    folder = tmp_path_factory.mktemp("places")
    urls = {"memory": "memory://", "sqlite": f"{folder}/places.db", "lmdb": f"lmdb:///{folder}/places.lmdb"}
    with opened(urls[request.param], COUNT // 10) as one:
        yield one


def ids(found: Any) -> list[int]:
    return [place.id for place in found]


def the_answer_is_that_of_python(loaded: Loaded, question: Question) -> int:
    asked = question.ask(loaded.places)
    plan, expected = asked.explain(), loaded.expected(question)
    assert not plan.full_scan, str(plan)
    assert plan.combine == question.combine, str(plan)
    assert set(question.indexes) <= set(plan.indexes), str(plan)
    found = ids(asked)
    assert (found if question.order else sorted(found)) == expected
    assert asked.count() == len(expected)
    assert asked.exists() is bool(expected)
    assert ids(asked[2:9]) == found[2:9]
    assert ids(asked.reverse()[:100]) == found[::-1][:100]
    return len(expected)


def pages_give_the_same_answer(loaded: Loaded, question: Question) -> None:
    asked = question.ask(loaded.places)
    whole = ids(asked)
    size = max(1, len(whole) // 4)
    page = asked.page(size=size)
    forward = [ids(page)]
    while page.has_more:
        page = asked.page(size=size, after=page.next_cursor)
        forward.append(ids(page))
    assert list(chain(*forward)) == whole
    back = [ids(page)]
    while page.has_previous:
        page = asked.page(size=size, before=page.previous_cursor)
        back.append(ids(page))
    assert list(chain(*reversed(back))) == whole


def countries_are_read_from_counters(loaded: Loaded) -> None:
    places, people = Counter[str](), Counter[str]()
    for row in loaded.rows:
        places[row["country"]] += 1
        people[row["country"]] += row["population"]
    grouped = loaded.places.group_by("country").aggregate(places=Count(), people=Sum("population"))
    expected = [{"country": name, "places": places[name], "people": people[name]} for name in sorted(places)]
    assert list(grouped) == expected
    for name in sorted(places)[:20]:
        assert loaded.places.filter(country=name).count() == places[name]
    assert loaded.places.aggregate(Sum("population")) == {"population__sum": sum(people.values())}


def groups_without_a_counter_come_from_entries(loaded: Loaded) -> None:
    by_region = defaultdict(list)
    for row in loaded.rows:
        if row["country"] == "AA":
            by_region[row["admin"] and row["admin"]["region"]].append(row)
    grouped = loaded.places.filter(country="AA").group_by("admin.region").aggregate(Count(), Max("population"))
    assert list(grouped) == [
        {
            "admin.region": region,
            "count": len(by_region[region]),
            "population__max": max(row["population"] for row in by_region[region]),
        }
        for region in sorted(by_region, key=lambda region: (region is not None, region))
    ]


def numbers_over_a_range_are_those_of_python(loaded: Loaded) -> None:
    people = [row["population"] for row in loaded.rows if row["country"] == "AA" and row["population"] >= 1_000]
    asked = loaded.places.filter(country="AA", population__gte=1_000)
    found = asked.aggregate(Count(), Sum("population"), Min("population"), Max("population"), Avg("population"))
    assert found == {
        "count": len(people),
        "population__sum": sum(people),
        "population__min": min(people),
        "population__max": max(people),
        "population__avg": sum(people) / len(people),
    }


def names_come_from_the_entries_alone(loaded: Loaded) -> None:
    expected = sorted((row for row in loaded.rows if row["country"] == "AD"), key=largest)[:10]
    asked = loaded.places.filter(country="AD").order_by("-population")[:10]
    shown = asked.values_list("name", "population")
    assert shown.to_list() == [(row["name"], row["population"]) for row in expected]
    assert all(scan.covers for scan in shown.explain().scans)
    assert asked.values("id", "name").to_list() == [{"id": row["id"], "name": row["name"]} for row in expected]


def distinct_values_are_read_by_leaps(loaded: Loaded) -> None:
    countries = loaded.places.all().order_by("country").values_list("country", flat=True).distinct()
    assert countries.to_list() == sorted({row["country"] for row in loaded.rows})
    assert list(loaded.places.group_by("kind").aggregate(n=Count())) == [
        {"kind": kind, "n": sum(row["kind"] == kind for row in loaded.rows)} for kind in sorted(KINDS)
    ]


NUMBERS = {
    check.__name__: check
    for check in (
        countries_are_read_from_counters,
        groups_without_a_counter_come_from_entries,
        numbers_over_a_range_are_those_of_python,
        names_come_from_the_entries_alone,
        distinct_values_are_read_by_leaps,
    )
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_is_that_of_python_and_no_plan_scans(loaded, name):
    the_answer_is_that_of_python(loaded, QUESTIONS[name])


@pytest.mark.servers
@pytest.mark.parametrize("name", QUESTIONS)
def test_pages_in_both_directions_give_the_same_answer(loaded, name):
    pages_give_the_same_answer(loaded, QUESTIONS[name])


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_and_groups_are_those_of_python(loaded, name):
    NUMBERS[name](loaded)


def test_every_alternate_name_of_a_place_finds_it(loaded):
    for row in loaded.rows[:: len(loaded.rows) // 40]:
        for name in row["names"]:
            assert row["id"] in ids(loaded.places.filter(names__contains=name.casefold()))


def test_what_no_index_serves_is_refused(loaded):
    with pytest.raises(NoUsableIndexError) as caught:
        loaded.places.filter(position__latitude__gt=60.0).to_list()
    assert "position.latitude" in str(caught.value)


def all_places_agree(url: str) -> None:
    """Every question and number over all places, loaded once."""
    with opened(url, COUNT) as loaded:
        assert loaded.places.count() == COUNT
        sizes = {name: the_answer_is_that_of_python(loaded, question) for name, question in QUESTIONS.items()}
        for name, question in QUESTIONS.items():
            if sizes[name] < WALKED:
                pages_give_the_same_answer(loaded, question)
        for check in NUMBERS.values():
            check(loaded)
    print(sizes)
    assert min(sizes.values()) > 0
    assert max(sizes.values()) < COUNT // 3


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_34_000_places_answer_every_question_as_python_does(engine: str, url_of: Callable[..., str]):
    all_places_agree(url_of(engine))


def test_the_places_have_the_shape_that_is_promised():
    rows = list(example.rows())
    counts = Counter(len(row["names"]) for row in rows)
    assert (len(rows), min(counts), max(counts)) == (34_000, 0, MOST_NAMES)
    assert len({row["country"] for row in rows}) == 200
    assert sum(row["population"] == 0 for row in rows) > len(rows) // 3
    populated = Counter(row["population"] for row in rows if row["population"])
    assert populated.most_common(1)[0][1] > 100, "many populations are equal"
    assert any(len(folded(row)) < len(set(row["names"])) for row in rows), "some names differ in capital letters only"
    assert rows[:100] == list(example.rows(100)), "the same places in every run"


def test_every_entry_of_the_store_is_the_one_of_its_record():
    with opened("memory://", 300) as loaded:
        report = loaded.db.check()
        assert report.ok
        assert report.scanned > 10 * 300


def test_the_example_shows_its_answers_and_plans(capsys):
    example.main(count=2_000)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2,000 places"
    assert "Place: 1 range of index country_population" in lines
