"""The rarest trigrams are read, whatever is written between two pages, and in transactions with their own writes."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import msgpack
import pytest

from kvmodels import Database, InvalidCursorError, KvModel, PrimaryKey, Q, TransactionConflictError, TrigramIndex
from kvmodels._support.base64url import base64url_bytes
from kvmodels.query.planning.cursor import cursor_after
from kvmodels.query.plans import QueryPlan
from kvmodels.schema.filters.predicate import Condition


class Name(KvModel, collection="names"):
    id: PrimaryKey[int]
    text: str
    org: str = "acme"

    class Meta:
        indexes = (TrigramIndex("text", name="parts"), TrigramIndex("text", group="org", name="of_org"))


@contextmanager
def store() -> Iterator[Database]:
    """Sixty common names and twelve rare ones."""
    with Database("memory://", models=[Name]) as opened:
        opened[Name].bulk_create([Name(id=n, text=f"common word {n}") for n in range(60)])
        opened[Name].bulk_create([Name(id=100 + n, text=f"common rarity {n}", org="zoo") for n in range(12)])
        yield opened


@pytest.fixture(name="db")
def _db() -> Iterator[Database]:
    with store() as opened:
        yield opened


def lists(plan: QueryPlan) -> list[str]:
    """The trigrams that are read, of each scan."""
    found: list[str] = []
    for scan in plan.scans:
        (one,) = [part for part in scan.served if isinstance(part, Condition) and part.lookup == "of_kind"]
        found.append(one.operand.value)
    return found


def test_the_three_rarest_are_intersected(db: Any):
    query = db[Name].filter(text__icontains="mon rarity")
    plan = query.explain(analyze=True)
    assert plan.combine == "intersect"
    assert plan.index == "parts"
    assert set(lists(plan)) <= {"n r", " ra", "rar", "ari", "rit", "ity"}
    assert (plan.analysis.rows, plan.analysis.records, plan.analysis.results) == (36, 12, 12)


def test_the_group_decides_which_are_the_rarest(db: Any):
    # In this group every record has the trigrams of "rarity".
    plan = db[Name].filter(text__icontains="rarity 1", org="zoo").explain()
    assert plan.index == "of_org"
    assert set(lists(plan)) & {"y 1", "ty "}
    several = db[Name].filter(text__icontains="common rarity 1", org__in=["acme", "zoo"])
    assert [one.id for one in several] == [101, 110, 111]
    assert len(lists(several.using_index("of_org").explain())) == 1


def test_an_alternative_reads_its_rarest_trigram(db: Any):
    plan = db[Name].filter(Q(text__icontains="common rarity 1") | Q(text__endswith="word 59")).explain(analyze=True)
    assert len(plan.scans) == 2
    assert plan.analysis.rows <= 14
    assert plan.analysis.results == 4


def test_pages_continue_although_other_trigrams_have_become_the_rarest(db: Any):
    query = db[Name].filter(Q(text__icontains="rarity") | Q(text__icontains="mon rar"))
    seen, cursor = [], None
    for number in range(20):
        page = query.page(size=2, after=cursor)
        seen += [one.id for one in page]
        cursor = page.next_cursor
        if cursor is None:
            break
        # Each page makes the trigrams that the first page chose more common.
        db[Name].bulk_create([Name(id=10_000 + 100 * number + n, text="rar ari rit n r") for n in range(30)])
    assert seen == list(range(100, 112))


@pytest.mark.parametrize(
    "choice", [[[0, 1, 9]], [[0, 1, 2, 3]], [[]], [], [[-1]], [["0"]], [[0], [1]], 7, None, [[True]]]
)
def test_a_cursor_with_another_choice_is_refused_or_means_the_same(db, choice):
    query = db[Name].filter(text__icontains="rarity")
    cursor = query.page(size=2).next_cursor
    payload = msgpack.unpackb(base64url_bytes(cursor + "=" * (-len(cursor) % 4))[:-8])
    assert len(payload) == 5
    forged = [*payload[:4], choice]
    with pytest.raises(InvalidCursorError):
        query.page(size=2, after=sealed(forged))
    assert [one.id for one in query.page(size=2, after=sealed(payload))] == [102, 103]


def sealed(parts: Any) -> str:
    data = msgpack.packb(parts)
    return urlsafe_b64encode(data + sha256(data).digest()[:8]).decode().rstrip("=")


def test_other_cursors_have_no_choice(db: Any):
    query = db[Name].all()
    plan = query.explain()
    cursor = cursor_after(plan, b"x")
    assert len(msgpack.unpackb(base64url_bytes(cursor + "=" * (-len(cursor) % 4))[:-8])) == 4


def test_a_transaction_sees_its_own_writes(db: Any):
    with db.transaction() as tx:
        names = tx[Name]
        names.create(id=1_000, text="Common RARITY of mine")
        names.patch(100, text="another text")
        names.remove(101)
        found = names.filter(text__icontains="rarity")
        assert [one.id for one in found] == [*range(102, 112), 1_000]
        assert found.count() == 11
        assert [one.id for one in names.filter(text__icontains="OTHER TE")] == [100]
    assert db[Name].filter(text__icontains="rarity").count() == 11


def test_a_transaction_conflicts_with_a_change_of_a_name_that_it_found(db: Any):
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        assert tx[Name].filter(text__icontains="rarity 11").count() == 1
        tx[Name].create(id=2_000, text="first")
        db[Name].patch(111, text="a name that changes")


def test_bulk_writes_by_a_part(db: Any):
    changed = db[Name].filter(text__icontains="RARITY").update(text="changed")
    assert (changed.matched, changed.written) == (12, 12)
    assert db[Name].filter(text__iexact="CHANGED").count() == 12
    resumed = db[Name].filter(text__icontains="word 1").delete(resume_id="once")
    assert resumed.written == 11
    assert db[Name].filter(text__icontains="word 1").delete(resume_id="once").resumed
    assert db.check().ok


def test_totals_groups_and_values_of_a_part(db: Any):
    query = db[Name].filter(text__icontains="rarity 1")
    assert [row["org"] for row in query.values("org").distinct().sort_in_memory(9)] == ["zoo"]
    assert query.first().id == 101
    assert query.last().id == 111
    assert query[1].id == 110
    assert query.exists()
    assert [one.id for one in query.exclude(text__endswith="1")] == [110]
    assert [one.id for one in db[Name].filter(~Q(text__icontains="word"), text__icontains="common")] == list(
        range(100, 112)
    )


def test_a_hostile_part_costs_no_more_than_its_first_trigrams(db: Any):
    for part in ["a" * 100_000, "\0" * 50, "%_*?[]()\\", "".join(map(chr, range(1, 5_000))), "é" * 3, "\u0301" * 9]:
        plan = db[Name].filter(text__icontains=part).explain(analyze=True)
        assert plan.analysis.results == 0
        assert plan.analysis.rows == 0
        assert plan.analysis.batches <= 2
