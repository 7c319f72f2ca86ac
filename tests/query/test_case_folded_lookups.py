"""``icontains``, ``endswith`` and ``iexact``: what they match, and that they are only tested, never served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import pytest

from kvmodels import (
    Database,
    Indexed,
    InvalidValueError,
    KvModel,
    MultiIndexed,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    UnknownLookupError,
)

NAMES = ("Ada", "ADAM", "Straße", "STRASSE", "", None, "İstanbul", "ada")


class Entry(KvModel, collection="entries"):
    id: PrimaryKey[int]
    name: Indexed[str | None]
    tags: MultiIndexed[list[str]]
    folded: Annotated[str, Indexed(key=str.casefold)]
    data: Indexed[bytes]


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with Database("memory://", models=[Entry]) as database:
        for number, name in enumerate(NAMES):
            text = name or ""
            entry = Entry(id=number, name=name, tags=[text, "x"], folded=text, data=text.encode())
            database[Entry].insert(entry)
        yield database


def ids(db: Database, **lookups: object) -> list[int]:
    return [entry.id for entry in db[Entry].filter(**lookups).allow_scan()]


def test_they_match_as_python_compares_case_folded_text(db: Database):
    for part in ("ada", "STRASSE", "ß", "", "m"):
        wanted = part.casefold()
        held = [(number, name) for number, name in enumerate(NAMES) if name is not None]
        assert ids(db, name__icontains=part) == [number for number, name in held if wanted in name.casefold()]
        assert ids(db, name__iexact=part) == [number for number, name in held if wanted == name.casefold()]
        assert ids(db, name__endswith=part) == [number for number, name in held if name.endswith(part)]
        assert ids(db, folded__endswith=part) == [
            number for number, name in enumerate(NAMES) if (name or "").casefold().endswith(wanted)
        ]
        assert ids(db, tags__any__iexact=part) == [
            number for number, name in enumerate(NAMES) if wanted == (name or "").casefold()
        ]
        raw = part.encode()
        assert ids(db, data__endswith=raw) == [
            number for number, name in enumerate(NAMES) if (name or "").encode().endswith(raw)
        ]


def test_none_is_matched_only_by_iexact_none_and_by_negation(db: Database):
    assert ids(db, name__iexact=None) == [5]
    assert [entry.id for entry in db[Entry].exclude(name__icontains="a").allow_scan()] == [4, 5]
    assert [entry.id for entry in db[Entry].filter(~Q(name__endswith="a") & Q(id__lt=2)).allow_scan()] == [1]
    for lookup in ("icontains", "endswith"):
        with pytest.raises(InvalidValueError):
            ids(db, **{f"name__{lookup}": None})


def test_no_index_serves_them_and_beside_one_they_are_tested(db: Database):
    for query in (
        db[Entry].filter(Entry.name.icontains("ADA")),
        db[Entry].filter(Entry.name.endswith("a")),
        db[Entry].filter(Entry.name.iexact("ADA")),
    ):
        with pytest.raises(NoUsableIndexError):
            query.to_list()
    served = db[Entry].filter(Entry.name.startswith("A") & Entry.name.iexact("ADA"))
    assert [entry.id for entry in served] == [0]
    assert "name = 'ADA' in any case" in str(served.explain())
    assert "'AD' in name in any case" in str(db[Entry].filter(name__icontains="AD").allow_scan().explain())
    assert "name endswith 'a'" in str(db[Entry].filter(name__endswith="a").allow_scan().explain())


def test_a_page_continues_only_the_query_that_made_it(db: Database):
    first = db[Entry].filter(name__icontains="a").allow_scan().page(size=2)
    rest = db[Entry].filter(name__icontains="a").allow_scan().page(size=9, after=first.next_cursor)
    assert [entry.id for entry in (*first.items, *rest.items)] == ids(db, name__icontains="a")
    with pytest.raises(Exception, match="query"):
        db[Entry].filter(name__iexact="a").allow_scan().page(size=9, after=first.next_cursor)


def test_fields_without_text_have_none_of_them(db: Database):
    for lookup in ("id__icontains", "id__endswith", "id__iexact", "data__icontains", "data__iexact", "tags__iexact"):
        with pytest.raises(UnknownLookupError):
            ids(db, **{lookup: "1"})
    with pytest.raises(InvalidValueError):
        ids(db, name__icontains=3)
