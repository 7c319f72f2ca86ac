"""A hostile text costs a search no more than its words, and long texts cost writes and searches in proportion."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest

from kvmodels import Database, KvModel, PrimaryKey, SearchIndex
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.docs.measured_engine import MeasuredEngine
from tests.search.test_search_index import HOSTILE
from tools.trace_calls import instructions

RECORDS = 40
CUT = 60
"""The longest part of a hostile text whose instructions are counted; longer ones take proportionally more."""
PER_CHARACTER = 100
FEW = 200
"""The number of times that a part of a text is repeated."""


class Leaf(KvModel, collection="leaves"):
    id: PrimaryKey[int]
    title: str | None = None
    body: str = ""

    class Meta:
        indexes = (SearchIndex("title", "body", name="by_text"),)


def test_a_hostile_text_reads_no_more_rows_than_the_entries_of_its_words():
    engine = MeasuredEngine(MemoryEngine())
    with Database.from_engine(engine, DatabaseCore([Leaf])) as db:
        leaves = db[Leaf]
        leaves.bulk_create([Leaf(id=n, body=f"a b{n} select 東京 {'rare' if n == 7 else ''}") for n in range(RECORDS)])
        entries = Counter(entry.key[1] for entry in db.kv.list(prefix=("leaves_by_by_text",)))
        for text in HOSTILE:
            words = set(re.findall(r"[^\W_]+", text.casefold()))
            most = sum(number for term, number in entries.items() if any(str(term).startswith(w) for w in words))
            engine.take()
            found = leaves.search("by_text", text)[:5].to_list()
            ranked = engine.take()
            leaves.filter(by_text__search=text).count()
            counted = engine.take()
            # Phrases read a record for each entry of their rarest word; then there are the header and two counters.
            assert ranked.rows <= 2 * most + len(found) + 5, text[:40]
            assert ranked.reads <= 9, text[:40]
            assert counted.rows <= 2 * most + 5, text[:40]
            assert ranked.commits == counted.commits == 0


def test_a_hostile_text_takes_at_most_the_instructions_of_its_words_and_characters():
    """Signs without a meaning cost a fixed number of instructions each, and no request."""
    with Database("memory://", models=[Leaf]) as db:
        leaves = db[Leaf]
        leaves.bulk_create([Leaf(id=n, body=f"a b{n} select 東京") for n in range(4)])

        @cache
        def cost(text: str) -> int:
            return instructions(lambda: leaves.search("by_text", text)[:5].to_list())

        for text in sorted({hostile[:CUT] for hostile in HOSTILE}):
            words = re.findall(r"[^\W_]+", text.casefold())
            plain = max(cost(" ".join(words)), cost(" OR ".join(words)), cost("a"))
            assert cost(text) <= 2 * plain + PER_CHARACTER * len(text), text[:40]


@pytest.mark.parametrize("part", ['" ', "-", ":", "*", "OR ", "(", "a:", "-a ", "a OR ", "東", "\ufdfa", "a ", "a* "])
def test_a_text_of_twice_the_length_takes_at_most_twice_the_instructions(part: str):
    with Database("memory://", models=[Leaf]) as db:
        leaves = db[Leaf]
        leaves.create(id=1, body="a b")

        def cost(times: int) -> int:
            return instructions(lambda: leaves.filter(by_text__search=part * times).count())

        cost(FEW)
        assert cost(2 * FEW) <= 2.1 * cost(FEW) + 2_000


@pytest.mark.parametrize("part", ["lorem ipsum dolor ", "x", "\u0301", "東"])
def test_a_field_of_twice_the_length_takes_at_most_twice_the_instructions(part: str):
    with Database("memory://", models=[Leaf]) as db:

        def cost(key: int, times: int) -> int:
            return instructions(lambda: db[Leaf].create(id=key, body=part * times))

        cost(1, FEW)
        assert cost(3, 2 * FEW) <= 2.1 * cost(2, FEW) + 2_000
