"""Each call of Django on the pages for newcomers and its counterpart here give the same, on the same records."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.ported.sides import PAGES, Row, Sides, section_of

PROGRAMS = "two-django-programs.md"
SECTIONS = {
    "monitoring": section_of(PROGRAMS, "healthchecks"),
    "bookmarking": section_of(PROGRAMS, "linkding"),
    "library": section_of("django.md", "Several tables"),
}
CALLS = [
    pytest.param(application, row, id=f"{application}-{number}")
    for application, section in SECTIONS.items()
    for number, row in enumerate(section.rows, 1)
    if row.is_there
]


@pytest.fixture(scope="module")
def sides() -> dict[str, Sides]:
    return {application: Sides(application, section) for application, section in SECTIONS.items()}


@pytest.mark.parametrize(("application", "row"), CALLS)
def test_both_sides_give_the_same(sides: dict[str, Sides], application: str, row: Row):
    there, here = sides[application].answers(row)
    assert here == there


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("Check.objects.filter(project=project)", "checks.filter(project=2)"),
        ('Check.objects.order_by("-id")', 'checks.order_by("id")'),
        ("Check.objects.filter(pk=1).delete()", "checks.filter(pk=2).delete()"),
        ('Check.objects.filter(pk=1).update(name="x")', 'checks.filter(pk=1).update(name="y").written'),
    ],
)
def test_a_wrong_counterpart_is_noticed(sides: dict[str, Sides], call: str, wrong: str):
    there, here = sides["monitoring"].answers(Row("", call, wrong, "same"))
    assert here != there


@pytest.mark.parametrize(("application", "calls", "most_left"), [("monitoring", 53, 13), ("bookmarking", 55, 13)])
def test_most_calls_have_a_counterpart_and_the_page_says_how_many(application: str, calls: int, most_left: int):
    section = SECTIONS[application]
    kinds = Counter(row.kind if row.is_there else "not there" for row in section.rows)
    assert set(kinds) == {"same", "named", "not there"}
    assert len(section.rows) == calls
    assert kinds["not there"] <= most_left
    text = (PAGES / PROGRAMS).read_text("utf-8")
    (said,) = re.findall(rf"\*\*{section.title}\*\* .*", text)
    numbers = [int(number) for number in re.findall(r"\d+", said)]
    assert numbers == [calls, kinds["same"], kinds["named"], kinds["not there"]]
