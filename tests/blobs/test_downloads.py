"""Content of blobs as files of the operating system, and opened blobs without a block."""

from __future__ import annotations

import errno
import inspect
import io
import os
import stat
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Blob,
    BlobFile,
    BlobGoneError,
    Database,
    DecodeError,
    EngineError,
    InvalidArgumentError,
    KvModelsError,
    OpenBlob,
)
from kvmodels.catalog.keyspace import CHUNKS, chunk_key
from kvmodels.core.keys import decode_key
from tests.blobs.stores import MODELS, Paper, content

LONG = bytes(range(256)) * 12_000  # 3 MB
BOTH = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


class Store:
    """A database of either kind with one paper."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async
        self.db: Any = (AsyncDatabase if is_async else Database)("memory://", models=MODELS)

    async def blob(self, text: bytes = LONG) -> Blob:
        """Return the blob of a new paper."""
        if self.is_async:
            await self.db.open()
        paper = await self.done(self.db[Paper].create(id=1, scan=content(text)))
        assert paper.scan is not None
        return paper.scan

    async def done(self, result: Any) -> Any:
        """Return a result, awaited if it must be."""
        return await result if inspect.isawaitable(result) else result

    async def download(self, blob: Blob, path: Any, **options: Any) -> Path:
        """Write the content to a file."""
        if self.is_async:
            return await blob.adownload_to(path, **options)
        return blob.download_to(path, **options)


@BOTH
@pytest.mark.parametrize("text", [LONG, b"", b"short"], ids=["long", "empty", "short"])
async def test_a_download_has_the_content_and_belongs_to_its_owner(is_async: bool, text: bytes, tmp_path: Path):
    store = Store(is_async)
    blob = await store.blob(text)
    found = await store.download(blob, tmp_path / "scan.pdf")
    assert found == tmp_path / "scan.pdf"
    assert found.read_bytes() == text
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["scan.pdf"]
    for longest in ("x" * 250, "\U0001f600" * 63):
        assert await store.download(blob, str(tmp_path / longest)) == tmp_path / longest


@BOTH
async def test_a_file_is_replaced_on_request_alone(is_async: bool, tmp_path: Path):
    store, path = Store(is_async), tmp_path / "scan.pdf"
    blob = await store.blob()
    path.write_text("mine")
    with pytest.raises(EngineError, match=r"exists already.*overwrite=True"):
        await store.download(blob, path)
    assert (path.read_text(), os.listdir(tmp_path)) == ("mine", ["scan.pdf"])
    await store.download(blob, path, overwrite=True)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (LONG, ["scan.pdf"])


@BOTH
async def test_a_file_that_appears_meanwhile_is_kept(is_async: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store, path, sync = Store(is_async), tmp_path / "scan.pdf", os.fsync

    def appears(number: int) -> None:
        path.write_text("mine")
        sync(number)

    blob = await store.blob()
    monkeypatch.setattr(os, "fsync", appears)
    with pytest.raises(EngineError, match="exists already"):
        await store.download(blob, path)
    assert (path.read_text(), os.listdir(tmp_path)) == ("mine", ["scan.pdf"])


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_file_system_without_links_has_downloads_too(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store, path = Store(False), tmp_path / "scan.pdf"

    def refuses(*_: object) -> None:
        if is_there:
            path.write_text("mine")
        raise OSError(errno.EPERM, "no links")

    blob = await store.blob()
    monkeypatch.setattr(os, "link", refuses)
    if is_there:
        with pytest.raises(EngineError, match="exists already"):
            blob.download_to(path)
    else:
        blob.download_to(path)
    assert path.read_bytes() == (b"mine" if is_there else LONG)
    assert os.listdir(tmp_path) == ["scan.pdf"]


@BOTH
@pytest.mark.parametrize("damage", ["gone", "damaged"])
async def test_content_that_cannot_be_read_leaves_no_file(is_async: bool, damage: str, tmp_path: Path):
    store = Store(is_async)
    blob = await store.blob()
    last = chunk_key(blob.stored.id, blob.stored.chunks - 1)
    key, kv = decode_key(last), store.db.kv.unsafe()
    assert last.startswith(CHUNKS)
    if damage == "gone":
        await store.done(kv.delete(key))
    else:
        value = (await store.done(kv.get(key))).value
        await store.done(kv.set(key, bytes([value[0] ^ 1]) + value[1:]))
    with pytest.raises(BlobGoneError if damage == "gone" else DecodeError):
        await store.download(blob, tmp_path / "scan.pdf")
    assert os.listdir(tmp_path) == []


@BOTH
async def test_a_path_that_cannot_be_written_is_refused(is_async: bool, tmp_path: Path):
    store = Store(is_async)
    blob = await store.blob()
    with pytest.raises(EngineError, match="cannot be written"):
        await store.download(blob, tmp_path / "absent" / "scan.pdf")
    for path, options in ((b"scan.pdf", {}), (7, {}), ("", {}), ("a\0b", {}), (tmp_path / "a", {"overwrite": 1})):
        with pytest.raises(KvModelsError):
            await store.download(blob, path, **options)
    assert os.listdir(tmp_path) == []


@BOTH
@pytest.mark.parametrize("text", [LONG, b"short"], ids=["long", "short"])
async def test_a_full_disk_leaves_no_file(is_async: bool, text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store, opened = Store(is_async), os.fdopen

    class Full(io.FileIO):
        def write(self, *_: object) -> int:
            raise OSError(errno.ENOSPC, "no space")

    blob = await store.blob(text)
    monkeypatch.setattr(os, "fdopen", lambda number, mode: io.BufferedWriter(Full(number, mode)))
    with pytest.raises(EngineError, match=r"cannot be written.*no space"):
        await store.download(blob, tmp_path / "scan.pdf")
    monkeypatch.setattr(os, "fdopen", opened)
    assert os.listdir(tmp_path) == []


@BOTH
async def test_the_method_of_the_other_kind_of_database_is_refused(is_async: bool, tmp_path: Path):
    blob = await Store(is_async).blob()
    with pytest.raises(InvalidArgumentError, match="blob.download_to" if not is_async else "await blob.adownload_to"):
        if is_async:
            blob.download_to(tmp_path / "a")
        else:
            await blob.adownload_to(tmp_path / "a")
    with pytest.raises(InvalidArgumentError, match="not stored"):
        Blob(b"new").download_to(tmp_path / "a")
    assert os.listdir(tmp_path) == []


@BOTH
async def test_an_opened_blob_without_a_block_is_refused(is_async: bool):
    block: OpenBlob = (await Store(is_async).blob()).open()
    opened: Any = block
    for use in (lambda: opened.read(), lambda: opened.seek(3), lambda: [*opened], lambda: opened.close()):
        with pytest.raises(InvalidArgumentError, match=f"'{'async ' * is_async}with blob.open\\(\\) as file'"):
            use()

    async def awaited() -> None:
        waiting: Awaitable[Any] = opened
        await waiting

    with pytest.raises(InvalidArgumentError, match="without a block"):
        await awaited()


async def test_an_opened_blob_has_types():
    with (await Store(False).blob(b"abc")).open() as file:
        found: BlobFile = file
        text: bytes = found.read()
    assert text == b"abc"
