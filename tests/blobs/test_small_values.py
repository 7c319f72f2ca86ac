"""Blobs on engines with small values: smaller chunks and batches, and an explicit limit on servers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvmodels import Blob, Database, InvalidArgumentError, Limits
from kvmodels.flows.blobs.upload import sizes_of
from tests.blobs.stores import MODELS, Paper, content, read, require_owners

LONG = bytes(range(256)) * 8_000


@pytest.mark.parametrize("limits", [Limits.DENO, Limits.DENOKV_SERVER, Limits.ETCD], ids=lambda one: one.name)
def test_content_is_divided_into_chunks_that_the_engine_takes(limits: Limits) -> None:
    with Database("memory://", models=MODELS, limits=limits) as db:
        assert sizes_of(db._core.context.limits).chunk == 60 * 1024
        db[Paper].create(id=1, scan=content(LONG))
        db[Paper].create(id=2, scan=db[Paper].get(1).scan)
        db[Paper].remove(1)
        assert read(db[Paper].get(2).scan) == LONG
        require_owners(db)
        assert db.check(blobs=True).ok


def test_a_server_with_small_values_needs_an_explicit_limit() -> None:
    with Database("memory://", models=MODELS, limits=Limits.DENO) as db:
        context = db._core.context
        context.traits = replace(context.traits, remote=True)
        with pytest.raises(InvalidArgumentError, match="not made for blobs"):
            db[Paper].create(id=1, scan=Blob(b"x"))
        db[Paper].create(id=1, scan=Blob(b"x", max_bytes=10))
        require_owners(db)
