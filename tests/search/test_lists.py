"""Lists of entries are read as a whole, cut to fit one request, or asked for single records, with equal results."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kvmodels import Database, KvModel, Limits, PrimaryKey, SearchIndex
from kvmodels.catalog.keyspace import index_layout
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import U64_ENCODING, PlainRow
from kvmodels.flows.execution.lists import list_ranges, lists_in, nearest_of, sums_in
from kvmodels.indexing.entries import to_u64
from kvmodels.query.kinds.ranking import ReadLists
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.words.stored_terms import named_terms, packed_terms, unpacked_terms
from kvmodels.schema.words.tokenizer import Tokenizer

RECORDS = 1_100


class Text(KvModel, collection="texts"):
    id: PrimaryKey[int]
    groups: list[str] = []
    text: str

    class Meta:
        indexes = (SearchIndex("text", name="words"), SearchIndex("text", group="groups", name="in_groups"))


def filled(**options: Any) -> Database:
    db = Database("memory://", models=[Text], **options)
    rows = [
        Text(id=key, text=f"all {'half ' * (1 + key % 5) if key % 2 else ''}n{key % 100}") for key in range(RECORDS)
    ]
    for start in range(0, RECORDS, 90):
        db[Text].bulk_create(rows[start : start + 90])
    return db


@pytest.fixture(scope="module")
def ample() -> Iterator[Database]:
    with filled() as db:
        yield db


@pytest.fixture(scope="module")
def tight() -> Iterator[Database]:
    with filled(limits=Limits.DENO) as db:
        yield db


@pytest.mark.parametrize("words", ["all", "half", "all half", "half n7", "half OR n4 OR all", "al*", '"half n7"'])
def test_lists_that_one_request_cannot_hold_rank_the_same_records(ample: Database, tight: Database, words: str):
    found = [(hit.record.id, hit.score) for hit in ample[Text].search("words", words)]
    assert found
    assert found == [(hit.record.id, hit.score) for hit in tight[Text].search("words", words)]
    assert found[:10] == [(hit.record.id, hit.score) for hit in ample[Text].search("words", words)[:10]]
    assert ample[Text].search("words", words).count() == len(found)
    with ample.transaction() as tx:
        assert found == [(hit.record.id, hit.score) for hit in tx[Text].search("words", words)]


def test_a_search_of_one_word_makes_two_requests(ample: Database):
    for words in ("n4", "all", "n4 OR half"):
        analysis = ample[Text].search("words", words)[:10].explain(analyze=True).analysis
        assert analysis is not None
        assert (analysis.batches, analysis.records) == (2, 10)


def test_a_record_in_several_groups_is_found_once():
    with Database("memory://", models=[Text]) as db:
        db[Text].create(id=1, groups=["a", "b"], text="key value")
        db[Text].create(id=2, groups=["b"], text="key")
        db[Text].create(id=3, groups=["c"], text="key")
        found = db[Text].filter(groups__contains="b")
        assert {hit.record.id for hit in found.search("in_groups", "key")} == {1, 2}


def test_lists_of_several_groups_are_joined_and_cut_alike():
    layout = index_layout("texts", schema_of(Text).indexes["words"], 1)
    heads = [layout.prefix + encode_key((group,)) for group in ("a", "b")]
    step = ReadLists([encode_key(("x",)), encode_key(("y",))], 3)
    asked = list_ranges(step, heads, Limits.EMBEDDED, 0)
    keys = [encode_key((number,)) for number in range(4)]
    rows = [[(one.start + pk, b"v%d" % at) for pk in keys[: at + 1]] for at, one in enumerate(asked.ranges)]
    first, second = lists_in(asked, rows, 2)
    assert first.values == {keys[0]: b"v1", keys[1]: b"v1"}
    assert (first.size, first.whole) == (3, True)
    assert (second.size, second.whole) == (7, False)
    assert list_ranges(step._replace(counters=(b"c",)), heads, Limits.DENO, 2).limit == 3
    assert list_ranges(step._replace(counters=(b"c",), limit=5_000), heads, Limits.DENO, 2).limit == 997 // 4


def test_counters_in_plain_rows_are_summed_over_the_groups():
    """An engine may return plain tuples with the number of a version."""
    rows: list[list[PlainRow]] = [
        [(b"count a", to_u64(3).to_bytes(8, "little"), U64_ENCODING, 7, None)],
        [],
        [(b"length a", to_u64(-2).to_bytes(8, "little"), U64_ENCODING, 8, None)],
        [(b"length b", to_u64(9).to_bytes(8, "little"), U64_ENCODING, 9, None)],
    ]
    assert [*sums_in(rows, 2)] == [3, 7]


@pytest.mark.parametrize("number", [1, 10, 40, 400])
def test_the_nearest_of_many_equal_distances_are_in_order(number: int):
    chance = Random(number)
    places = [(-float(chance.randrange(4)), encode_key((key,))) for key in range(400)]
    chance.shuffle(places)
    found: list[tuple[float, bytes]] = []
    others = places
    while others:
        nearest, others = nearest_of(others, number)
        assert len(nearest) >= min(number, 400 - len(found))
        found += nearest
    assert found == sorted(places)


def test_terms_that_are_named_are_those_of_all_terms():
    packed = packed_terms(Tokenizer(), ["key keys value é", "key 東京都"])
    assert packed is not None
    norm, terms = unpacked_terms(packed, 2)
    found = named_terms(packed, 2, {b"value", b"none"}, (b"key",))
    assert found == (norm, {name: terms[name] for name in ("key", "keys", "value")})
    assert named_terms(packed, 2, {one.encode() for one in terms}, ()) == (norm, terms)
    for damaged in (b"", None, packed[:-1], packed + b"\x05"):
        with pytest.raises(ValueError, match="terms"):
            named_terms(damaged, 2, (), ())


def test_a_row_of_another_program_among_the_entries_is_left_out():
    with Database("memory://", models=[Text]) as db:
        db[Text].create(id=1, text="key")
        entry = next(iter(db.kv.list(prefix=("texts_by_words", "key"))))
        db.kv.unsafe().set((*entry.key[:-1], 2), b"another value")
        db.kv.unsafe().set((*entry.key[:-1], 3), entry.value)
        assert [hit.record.id for hit in db[Text].search("words", "key")] == [1]
