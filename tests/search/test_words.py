"""Words of texts, their terms, and the language of queries."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest

from kvmodels import InvalidArgumentError, Search
from kvmodels.schema.words.conditions import NOTHING, condition_of, cover_of, plain_of
from kvmodels.schema.words.search import MAX_WORDS, parsed_search
from kvmodels.schema.words.stored_terms import length_of, norm_of, packed_terms, unpacked_terms
from kvmodels.schema.words.tokenizer import Tokenizer
from kvmodels.schema.words.word_runs import MAX_BYTES, words_in

PLAIN = Tokenizer()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Key-value_stores, 2nd!", ["key", "value", "stores", "2nd"]),
        ("STRASSE straße ﬁne ＡＢＣ", ["strasse", "strasse", "fine", "abc"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("cafe\u0301 café", ["café", "café"]),
        ("東京都", ["東京", "京都"]),
        ("iPhone手机x", ["iphone", "手机", "x"]),
        ("京 カメラ", ["京", "カメ", "メラ"]),
        ("กขค", ["กข", "ขค"]),
        ("don't", ["don", "t"]),
        ("\ud800 a\x00b 🎈", ["a", "b"]),
        ("", []),
    ],
)
def test_words_are_runs_of_letters_marks_and_numbers(text: str, words: list[str]):
    assert list(words_in(text)) == words


def test_long_words_are_cut_in_texts_and_queries_alike():
    (word,) = words_in("a" * 1000)
    assert word == "a" * 64
    (word,) = words_in("é" * 1000)
    assert len(word.encode()) <= MAX_BYTES
    (word,) = words_in("𝒳é" + "ह" * 1000)
    assert len(word.encode()) <= MAX_BYTES


def test_a_language_has_stems_and_stop_words():
    english = Tokenizer("english")
    assert [english.term(word) for word in english.words("Running stores")] == ["run", "store"]
    assert english.is_stop_word("the")
    assert english.is_stop_word("t")  # of don't
    assert not english.is_stop_word("store")
    assert english.digest == Tokenizer("english").digest != Tokenizer("german").digest
    assert english.digest != Tokenizer("english", ()).digest
    assert PLAIN.digest is None
    assert pickle.loads(pickle.dumps(english)).digest == english.digest


def test_stored_terms_are_read_as_they_were_packed():
    packed = packed_terms(PLAIN, ["a b a", ["b", "c" * 64], None])
    norm, terms = unpacked_terms(packed, 3)
    assert length_of(norm) == 5
    assert terms == {"a": b"\x02\x00\x00", "b": b"\x01\x01\x00", "c" * 64: b"\x00\x01\x00"}
    assert packed_terms(PLAIN, [None, None]) is None
    assert packed_terms(PLAIN, ["", None]) == b"\x00"
    assert unpacked_terms(packed_terms(PLAIN, ["a " * 1000]), 1).frequencies == {"a": b"\xff"}


@pytest.mark.parametrize("damaged", [b"", b"\x01\x00", b"\x01\x05ab", b"\x01\x01a", b"\x01\x01\xff\x01", "text", None])
def test_other_bytes_are_no_terms(damaged: object):
    with pytest.raises(ValueError, match=r"terms|decode"):
        unpacked_terms(damaged, 1)


def test_norms_grow_in_steps_of_a_quarter():
    lengths = [length_of(number) for number in range(60)]
    assert lengths == sorted(set(lengths))
    assert all(length_of(norm_of(length)) <= length < length_of(norm_of(length) + 1) for length in range(5000))
    assert all(later <= max(before + 1, before * 1.25) for before, later in pairwise(lengths))


def condition(text: str, fields: tuple[str, ...] = ("title", "body")) -> object:
    stops = Tokenizer(None, ("the", "who"))
    return plain_of(condition_of(parsed_search(text, fields), stops, fields))


def term(name: str, field: int | None = None, *, prefix: bool = False) -> list[object]:
    return ["term", name, prefix, field]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Lmdb", term("lmdb")),
        ("a b", ["all", term("a"), term("b")]),
        ("a b OR c", ["any", ["all", term("a"), term("b")], term("c")]),
        ("a or b", ["all", term("a"), term("or"), term("b")]),
        ("a -b", ["all", term("a"), ["not", term("b")]]),
        ('"a b"', ["phrase", ["a", "b"], ["a", "b"], None]),
        ("“a b”", ["phrase", ["a", "b"], ["a", "b"], None]),
        ('"a the b', ["phrase", ["a", "the", "b"], ["a", "b"], None]),
        ("sto*", term("sto", prefix=True)),
        ("title:a", term("a", 0)),
        ('-body:"a b" c', ["all", ["not", ["phrase", ["a", "b"], ["a", "b"], 1]], term("c")]),
        ("author:a", ["phrase", ["author", "a"], ["author", "a"], None]),
        ("snake_case", ["phrase", ["snake", "case"], ["snake", "case"], None]),
        ("the a", term("a")),
        ("京", term("京", prefix=True)),
        ("a OR -b", term("a")),
        ("a a", term("a")),
        ("a OR a", term("a")),
        ("OR a OR OR", term("a")),
        ("the", ["any"]),
        ('"the who"', ["any"]),
        ("-a", ["any"]),
        ("-a -b OR -c", ["any"]),
        ("", ["any"]),
        ('" - * : OR', term("or")),
    ],
)
def test_the_language_of_queries(text: str, wanted: object):
    assert condition(text) == wanted


def test_alternatives_and_words_that_must_all_be_found_are_different_conditions():
    every, either = (condition_of(parsed_search(text, ()), PLAIN, ("body",)) for text in ("a b", "a OR b"))
    assert every != either


def test_the_list_of_the_longest_word_is_read():
    search = Search.all("ab", "abcdef", "abc") & Search.any("xxxxxxxxxxxx", "yyyyyyyyyyyy") & Search.prefix("zzzzzzzzz")
    node = condition_of(search.written, PLAIN, ("body",))
    assert [one.term for one in cover_of(node)] == ["abcdef"]


def test_a_query_has_at_most_a_hundred_words():
    for text in (" ".join(f"w{n}" for n in range(1000)), '"' + " ".join(f"w{n}" for n in range(1000)), "w-" * 4000):
        assert str(condition(text)).count("'w") <= 2 * MAX_WORDS
    assert condition_of(parsed_search("", ()), PLAIN, ("body",)) == NOTHING


def test_the_typed_form_joins_searches():
    found = Search.all("a", "b") & (Search.phrase("c d", field="title") | ~Search.any("e")) & Search.prefix("f")
    either = "(Search.phrase('c d', field='title') | ~(Search.any('e')))"
    shown = f"(Search.all('a', 'b') & {either}) & Search.prefix('f')"
    assert repr(found) == shown
    assert plain_of(condition_of(found.written, PLAIN, ("title",))) == [
        "all",
        ["all", ["all", term("a"), term("b")], ["any", ["phrase", ["c", "d"], ["c", "d"], 0], ["not", term("e")]]],
        term("f", prefix=True),
    ]
    assert Search.all("a", "b") != Search.any("a", "b")
    assert len({Search.all("a"), Search.all("a")}) == 1


def test_a_typed_search_takes_texts():
    for wrong in (lambda: Search.all(), lambda: Search.any(1), lambda: Search.phrase(None), lambda: Search()):  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError) as caught:
            wrong()
        assert "Search." in str(caught.value.hint)
