"""The tests of trigrams notice entries of another folding, a lookup that is not tested, and a choice that is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unicodedata import normalize

import pytest

from kvmodels.indexing.kinds import trigram as maintenance
from kvmodels.query.planning import cursor, narrowing, planner
from kvmodels.schema.kinds import trigram as definition
from kvmodels.schema.words import folding
from tests.kinds import test_trigram_choice
from tests.kinds.test_trigram_queries import SEED, check_queries


def certain(fold: Callable[[str], str]) -> Callable[[str], list[str]]:
    return lambda part: folding.trigrams(fold(part))


def nfkc(text: str) -> str:
    """ "resume" is contained in "resume" with an accent at its end, but its trigrams are not."""
    return normalize("NFKC", text).casefold()


def breaks(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the drawn queries fail; on a store in memory."""
    try:
        check_queries("memory://", SEED, 120)
    except Exception:  # noqa: BLE001 - whatever the mutant breaks
        return True
    finally:
        monkeypatch.undo()
    return False


@pytest.mark.parametrize("fold", [nfkc, str.lower, str], ids=["nfkc", "lower", "as it is"])
def test_trigrams_of_another_folding_lose_records(monkeypatch: pytest.MonkeyPatch, fold: Callable[[str], str]):
    monkeypatch.setattr(maintenance, "folded", fold)
    monkeypatch.setattr(definition, "certain_trigrams", certain(fold))
    assert breaks(monkeypatch)


def test_the_last_trigram_of_a_text_is_missed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(maintenance, "trigrams", lambda text: folding.trigrams(text[:-1]))
    assert breaks(monkeypatch)


def test_an_untested_lookup_finds_too_much(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(planner, "stated", lambda parts: ())
    assert breaks(monkeypatch)


def test_a_negated_lookup_has_no_entries(monkeypatch: pytest.MonkeyPatch):
    indexes = narrowing.narrowing_indexes

    def of_all(schema: Any, condition: Any) -> Any:
        return indexes(schema, condition._replace(negated=False))

    monkeypatch.setattr(narrowing, "narrowing_indexes", of_all)
    assert breaks(monkeypatch)


def test_a_candidate_too_many_loses_records(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(definition, "certain_trigrams", lambda part: [*folding.certain_trigrams(part), "zzz"])
    assert breaks(monkeypatch)


def test_a_cursor_without_its_choice_is_refused(monkeypatch: pytest.MonkeyPatch):
    again: Callable[..., Any] = narrowing.chosen_again
    monkeypatch.setattr(cursor, "chosen_again", lambda query, choice: again(query, [[0, 1]] if choice else choice))
    with test_trigram_choice.store() as db, pytest.raises(Exception, match=r"cursor|page"):
        test_trigram_choice.test_pages_continue_although_other_trigrams_have_become_the_rarest(db)


def test_the_checks_pass_without_a_mutant(monkeypatch: pytest.MonkeyPatch):
    assert not breaks(monkeypatch)
