"""Folded texts and their trigrams are the same on every release of Python, and no match of a scan is lost."""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels.schema.words.folding import LATER_LETTERS, certain_trigrams, folded, trigrams

LETTERS = st.text(
    st.sampled_from("aAbß ẞsSİiIıΣσςﬁFJ\u0301\u0345Ǆǰ日😀\0" + "\ua7dc\u019b\u1c89\u1c8a\U00010d50"), max_size=12
)


def test_the_folding_of_every_other_letter_is_that_of_unicode_14():
    """Fails on a Python whose Unicode has further letters with case: add them, and their folds, to the module."""
    every = (chr(number) for number in range(0x110000))
    folds = "".join(letter + folded(letter) for letter in every if folded(letter) != letter)
    assert sha256(folds.encode()).hexdigest() == "5bb13523f4c35ec8a25f925774efab53cb460e96e8460b2f76c124f723b403ce"


def test_letters_of_later_releases_are_not_folded():
    assert folded(f"A{LATER_LETTERS}B") == f"a{LATER_LETTERS}b"


@given(LETTERS, LETTERS)
def test_folding_works_character_by_character(one: str, other: str):
    assert folded(one + other) == folded(one) + folded(other)


@given(LETTERS, LETTERS, LETTERS)
def test_a_text_has_the_certain_trigrams_of_each_of_its_parts(before: str, part: str, after: str):
    held = set(trigrams(folded(before + part + after)))
    for form in (part, part.upper(), part.lower(), part.casefold(), part.title()):
        if form.casefold() in (before + part + after).casefold():
            assert held.issuperset(certain_trigrams(form))


def test_a_later_python_matches_letters_that_no_entry_folds(monkeypatch: pytest.MonkeyPatch):
    """A letter that is known to later releases only, and the letter that it folds to, lead to no entry."""
    assert certain_trigrams("ab\u019b") == []
    assert certain_trigrams("abc\ua7dc") == ["abc"]
    assert certain_trigrams("abcd\u1c8a") == ["abc", "bcd"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("ab", []),
        ("abc", ["abc"]),
        ("aaaa", ["aaa"]),
        ("ABCD", ["abc", "bcd"]),
        ("ßa", ["ssa"]),
        ("re\u0301", ["re\u0301"]),
        ("a\0b", ["a\0b"]),
        ("😀日😀", ["😀日😀"]),
    ],
)
def test_trigrams_are_three_characters_of_the_folded_text(text: str, found: list[str]):
    assert trigrams(folded(text)) == found


def test_a_long_text_has_each_trigram_once():
    text = "".join(chr(97 + n * n % 26) for n in range(1_000_000))
    found = trigrams(text)
    assert len(found) == len(set(found)) < 30
    assert all(one[1:] == other[:2] for one, other in pairwise(found[:3]))
