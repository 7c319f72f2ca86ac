"""``db.explain_key()``: what every kind of stored key is, without the classes of the program."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pytest

from kvmodels import Database, InvalidArgumentError, InvalidKeyError
from kvmodels.core.keys import Key, encode_key
from tests.describe.models import MODELS, Author, Book, Shelf


@pytest.fixture
def db(tmp_path) -> Iterator[Database]:
    """A handle without classes of a store with records, a queue, locks, a namespace and keys of the program."""
    url = str(tmp_path / "app.db")
    with Database(url, models=MODELS) as written:
        written[Author].create(id=1, email="ada@example.org")
        written[Author].create(id=2)
        written[Book].create(
            id=1742, author_id=1, title="Straße", genre="essay", price=89.66, pages=300, published=date(2026, 1, 2)
        )
        written[Shelf].create(room="A", number=7, label="x")
        written.kv.set(("settings", "dark"), True)
        written.kv.enqueue({"to": "ada"})
        written.kv.namespace("plugin").set("colour", "red")
    with Database(url) as bare:
        yield bare


def test_every_key_of_a_store_is_explained(db: Database):
    texts = [str(db.explain_key(entry.key)) for entry in db.kv.list((), keys_only=True)]
    for found in (
        "record 1742 of books",
        "entry of books.genre_price: genre='essay', price=89.66, record 1742",
        "entry of books.title: title='strasse', record 1742",
        "unique slot of books.titles: genre='essay', title='strasse', record 1742",
        "unique slot of authors.email: email='ada@example.org', record 1",
        "entry of authors.email: email=None, record 2",
        "entry of books.essays: published=datetime.date(2026, 1, 2), record 1742",
        "entry of books.author_id: author_id=1, record 1742",
        "counter count of books.genre_totals: genre='essay'",
        "counter sum:pages of books.genre_totals: genre='essay'",
        "guard of record 1 of authors, which others refer to",
        "record ('A', 7) of shelves",
        "entry of shelves.label: label='x', record ('A', 7)",
        "header of the store, with the catalogue",
        "key of the program, of no model",
        "in the namespace 'plugin': key of the program, of no model",
    ):
        assert found in texts
    assert sum(text.startswith("message ") for text in texts) == 1
    assert not [text for text in texts if "no such row" in text or "unknown kind" in text]


EXPLAINED: dict[Key, tuple[str, str | None]] = {
    ("books", 7): ("record", "record 7 of books (no such row)"),
    ("books", "x"): ("foreign", None),
    ("books", 7, 8): ("foreign", None),
    ("books_by_genre_price", "essay"): ("foreign", None),
    ("__kvmodels__", "fence", "books", "title", 2): ("fence", "fence of the build of books.title, generation 2"),
    ("__kvmodels__", "build", "books", "title", 1): ("build", "progress of the build of books.title"),
    ("__kvmodels__", "drop", "books", "title", 1): ("drop", None),
    ("__kvmodels__", "violation", "books", "title", 1, b"", 7): ("violation", "record 7 that books.title cannot hold"),
    ("__kvmodels__", "migration", "books"): ("migration", None),
    ("__kvmodels__", "unmigrated", "shelves", "A", 7): ("unmigrated", None),
    ("__kvmodels__", "blob", b"\x0a", 3): ("chunk", "chunk of the content of the blob 0a"),
    ("__kvmodels__", "loose", b"\x0a"): ("loose_blob", "state of the blob 0a, which no record has"),
    ("__kvmodels__", "lock", "nightly"): ("lock", "lock nightly"),
    ("__kvmodels__", "lock", "nightly", "0" * 20): ("ticket", None),
    ("__kvmodels__", "bulk", "import"): ("bulk", None),
    ("__kvmodels__", "keys", "notes"): ("key_counter", "next primary key that notes gives out"),
    ("__kvmodels__", "guard", "stock", 1): ("guard", None),
    ("__kvmodels__", "share", "stock", 1): ("guard", None),
    ("__kvmodels__", "token", "f00"): ("token", None),
    ("__kvmodels__", "ref", "authors", "anchor", 1): ("reference_anchor", None),
    ("__kvmodels__", "ns", "plugin", "__kvmodels__", "lock", "x"): ("namespace", "in the namespace 'plugin': lock x"),
    ("__kvmodels__", "counter", "old", "gone", 1, "x", "count"): ("counter", "counter count of old.gone"),
    ("__kvmodels__", "later", 1): ("reserved", None),
    ("__kvmodels__",): ("reserved", None),
    (): ("plain", None),
}


def test_a_key_without_a_row_is_explained_too(db: Database):
    for key, (kind, text) in EXPLAINED.items():
        explained = db.explain_key(key)
        assert (explained.kind, explained.exists, explained.key) == (kind, False, key)
        assert "(no such row)" in str(explained)
        if text is not None:
            assert str(explained).startswith(text.removesuffix(" (no such row)"))


def test_the_parts_of_an_explanation_are_data(db: Database):
    [entry] = db.kv.list(("books_by_genre_price",))
    explained = db.explain_key(entry.key)
    assert (explained.kind, explained.collection, explained.index, explained.generation) == (
        "entry",
        "books",
        "genre_price",
        1,
    )
    assert dict(explained.columns) == {"genre": "essay", "price": 89.66}
    assert (explained.primary_key, explained.exists) == (1742, True)


def test_packed_keys_are_explained_and_so_are_bytes_that_are_no_key(db: Database):
    assert db.explain_key(encode_key(("books", 1742))) == db.explain_key(("books", 1742))
    assert db.explain_key(b"\xee\x01").key == (b"\xee\x01",)


def test_other_things_are_refused(db: Database):
    for key in ("books", 7, None, {"a": 1}):
        with pytest.raises(InvalidArgumentError):
            db.explain_key(key)  # type: ignore[arg-type]
        with pytest.raises(InvalidKeyError):
            db.explain_key((key, {}))  # type: ignore[arg-type]
