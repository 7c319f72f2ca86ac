"""The content of files in ``db.stats()``."""

from __future__ import annotations

import pytest

from kvmodels import Database
from tests.blobs.stores import MODELS, Paper, content, rows


@pytest.mark.parametrize("url", ["memory://", "sqlite://:memory:"])
def test_the_chunks_of_blobs_are_counted_with_their_bytes(url: str):
    with Database(url, models=MODELS) as db:
        assert "blobs" not in str(db.stats())
        before = db.stats(exact=True)
        sizes = [1_000_000 if number < 3 else 10 + number for number in range(40)]
        for number, size in enumerate(sizes):
            db[Paper].create(id=number, scan=content(bytes(size)))
        exact, estimate = db.stats(exact=True), db.stats()
        chunks = len(rows(db, "blob"))
        assert chunks == estimate.blobs.rows == exact.blobs.rows == sum(max(1, -(-one // 262_144)) for one in sizes)
        assert sum(sizes) < exact.blobs.bytes < sum(sizes) + 100 * chunks
        assert exact.exact
        assert not estimate.exact
        assert exact.library.rows == before.library.rows
        assert f"\nblobs: {exact.blobs}\n" in str(exact)
        assert "<td>blobs" in exact._repr_html_()
