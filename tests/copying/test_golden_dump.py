"""A dump of format 1, written down: later versions read it, and write the same."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated

from kvmodels import Database, Indexed, KvModel, PrimaryKey, Unique, open_kv
from tests.copying.contents import contents, dumped, fill, same
from tests.oracle import audit, read_store, spec_of

GOLDEN = Path(__file__).parent.parent / "data" / "dump_format_1.ndjson"
NOW_MS = 1_700_000_000_000


class Oak(KvModel, collection="oaks"):
    """Declared here and nowhere else, since the file holds its catalogue."""

    park: PrimaryKey[str]
    number: PrimaryKey[int]
    tag: Annotated[str | None, Unique(store="record")] = None
    age: Annotated[float, Indexed(descending=True)]


def golden_store():
    """The store that the golden file is a dump of."""
    db = Database("memory://", models=[Oak], clock=lambda: NOW_MS)
    fill(db.kv)
    db[Oak].create(park="east", number=1, tag="t1", age=50.0, expire_in=60)
    db[Oak].create(park="east", number=2, age=0.5)
    return db


def test_the_dump_of_a_store_is_as_it_was_written_down():
    with golden_store() as db:
        lines = dumped(db.kv).splitlines(keepends=True)
    assert "".join(lines[1:]) == GOLDEN.read_text("utf-8").split("\n", 1)[1]


def test_the_dump_that_was_written_down_is_loaded():
    with golden_store() as db, open_kv(clock=lambda: NOW_MS) as kv:
        assert kv.load(GOLDEN) == len(contents(db.kv))
        assert same(contents(kv), contents(db.kv))
        assert audit(read_store(kv), [spec_of(Oak)]) == []
        graph = kv.get(("graph",)).value
        assert graph["self"] is graph
        assert graph["shared"][0] is graph["shared"][1]
        again = io.StringIO()
        kv.dump(again)
        assert again.getvalue().split("\n", 1)[1] == GOLDEN.read_text("utf-8").split("\n", 1)[1]
