"""The real Deno on served stores: it finds what it finds on a Deno KV of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvmodels import open_async_kv, open_kv
from kvmodels.ext.serve import AccessToken, KvConnectServer, ServedStore
from kvmodels.ext.serve.refusals import KEY_TOO_LARGE
from tests.postgres.databases import Databases
from tests.serve.serving import TOKEN, deno, running

HERE = Path(__file__).parent


@pytest.mark.servers
async def test_deno_finds_on_served_stores_what_it_finds_on_its_own(tmp_path):
    access = [AccessToken(TOKEN)]
    with open_kv(codec="v8") as memory, open_kv(f"lmdb:///{tmp_path}/kv.lmdb", codec="v8") as lmdb:
        async with open_async_kv(tmp_path / "kv.db", codec="v8") as sqlite:
            stores: dict[str, Any] = {"memory": memory, "sqlite": sqlite, "lmdb": lmdb}
            app = KvConnectServer([ServedStore(store, access, path=f"/{name}") for name, store in stores.items()])
            async with running(app) as port:
                urls = [f"http://127.0.0.1:{port}/{name}" for name in stores]
                *differences, steps = map(json.loads, (await deno(HERE / "drive.ts", tmp_path, *urls)).splitlines())
    assert steps > 200
    # LMDB takes keys of 511 bytes; the server says so with the text of Deno's own servers.
    found = [(store, step, text) for store, step, _, text in differences]
    assert found == [("lmdb", f"{step} of 2048", KEY_TOO_LARGE) for step in ("key", "check", "delete", "prefix")]


@pytest.mark.servers
async def test_deno_finds_the_same_on_postgresql(databases: Databases, tmp_path):
    async with open_async_kv(databases.url(), codec="v8") as kv:
        app = KvConnectServer([ServedStore(kv, [AccessToken(TOKEN)])])
        async with running(app) as port:
            output = await deno(HERE / "drive.ts", tmp_path, f"http://127.0.0.1:{port}/")
    *differences, steps = map(json.loads, output.splitlines())
    assert steps > 200
    assert differences == []
