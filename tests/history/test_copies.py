"""Histories in dumps and loads: the order of versions stays, and versionstamps of another store find nothing."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from kvmodels import Database, HistoryExpiredError, open_kv
from tests.history.test_evolution import Kept, text
from tests.kv.stores import Clock


@pytest.mark.parametrize("codec", ["msgpack", "v8"])
def test_a_load_keeps_versions_their_order_and_the_trash(url_of: Callable[..., str], codec: str):
    clock = Clock()
    urls = [url_of("sqlite", f"copy{number}") for number in range(3)]
    with Database(urls[0], models=[Kept], clock=clock, codec=codec) as db:
        for letter in "abc":
            clock.ms += 1_000
            db[Kept].save(Kept(id=1, text=letter), force=True)
        db[Kept].create(id=2, text="gone")
        clock.ms += 1_000
        db[Kept].remove(2)
        expected = [(one.record, one.at, one.changes) for one in db[Kept].history(1)]
    times = [at for _, at, _ in expected]
    for source, target in pairwise(urls):
        with open_kv(source, clock=clock, codec=codec) as old, open_kv(target, clock=clock, codec=codec) as new:
            file = io.StringIO()
            old.dump(file)
            file.seek(0)
            new.load(file)
    with Database(urls[-1], models=[Kept], clock=clock, codec=codec) as db:
        kept = db[Kept]
        assert [(one.record, one.at, one.changes) for one in kept.history(1)] == expected
        assert [kept.as_of(at).get(1).text for at in times if at is not None] == ["c", "b", "a"]
        clock.ms += 1_000
        kept.patch(1, text="d")
        assert [text(one) for one in kept.history(1)] == ["d", "c", "b", "a"]
        assert [text(one) for one in kept.trash()] == ["gone"]
        assert kept.restore(2).text == "gone"
        assert kept.get(1).versionstamp is not None
        assert kept.as_of(kept.get(1).versionstamp or "").get(1).text == "d"
        assert db.check().ok


def test_a_key_of_a_history_is_explained():
    with Database("memory://", models=[Kept]) as db:
        db[Kept].create(id=1)
        db[Kept].remove(1)
        told = [str(db.explain_key(one.key)) for one in db.kv.unsafe().list(prefix=("__kvmodels__",))]
        assert any(one.startswith("version of record 1 of notes") for one in told)
        assert "last version of removed record 1 of notes" in told


def test_the_moment_must_be_one_of_the_past():
    with Database("memory://", models=[Kept]) as db:
        for when in (datetime(2100, 1, 1, tzinfo=UTC), datetime(2020, 1, 1), "x", None):
            with pytest.raises(ValueError, match="moment"):
                db[Kept].as_of(when).get_or_none(1)  # type: ignore[arg-type]
        assert issubclass(HistoryExpiredError, Exception)
