"""``BlobResponse``: ranges, conditions and headers, with both kinds of database; and uploads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from fastapi import FastAPI, Request, UploadFile
from fastapi.testclient import TestClient
from starlette.requests import ClientDisconnect
from starlette.types import Message

from kvmodels import AsyncDatabase, Blob, Database
from kvmodels.ext.fastapi import AsyncRepo, BlobResponse, Repo, add_error_handlers, lifespan
from tests.blobs.stores import DAY_MS, MODELS, Paper
from tests.kv.stores import Clock

LONG = bytes(range(256)) * 5_000


def application(db: Database | AsyncDatabase) -> FastAPI:
    """Return a service that takes and sends the scan of a paper."""
    is_async = isinstance(db, AsyncDatabase)
    app = FastAPI(lifespan=lifespan(db))
    add_error_handlers(app)

    async def aupload(file: UploadFile, papers: AsyncRepo[Paper]) -> None:
        await papers.create(id=1, scan=Blob(file, content_type=file.content_type, max_bytes=2_000_000))

    async def adownload(papers: AsyncRepo[Paper]) -> BlobResponse:
        scan = (await papers.get(1)).scan
        assert scan is not None
        return BlobResponse(scan, filename="ä b.bin", headers={"cache-control": "private"})

    def upload(file: UploadFile, papers: Repo[Paper]) -> None:
        papers.create(id=1, scan=Blob(file.file, content_type=file.content_type, max_bytes=2_000_000))

    def download(papers: Repo[Paper]) -> BlobResponse:
        scan = papers.get(1).scan
        assert scan is not None
        return BlobResponse(scan, filename="ä b.bin", headers={"cache-control": "private"})

    app.put("/scan")(aupload if is_async else upload)
    app.api_route("/scan", methods=["GET", "HEAD"], response_model=None)(adownload if is_async else download)
    return app


@pytest.fixture(params=[Database, AsyncDatabase], ids=["sync", "async"])
def client(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    with TestClient(application(request.param("memory://", models=MODELS))) as found:
        found.put("/scan", files={"file": ("a.wav", LONG, "audio/wav")}).raise_for_status()
        yield found


def test_a_service_with_a_download_describes_itself() -> None:
    app = FastAPI()

    @app.head("/scan", include_in_schema=False)
    @app.get("/scan", response_class=BlobResponse)
    def download() -> None:
        """Send the scan."""

    assert app.openapi()["paths"]["/scan"]["get"]["responses"] == {"200": {"description": "Successful Response"}}


def test_the_whole_content_is_sent_as_a_download(client: TestClient) -> None:
    answer = client.get("/scan")
    assert (answer.status_code, answer.content == LONG) == (200, True)
    headers = answer.headers
    assert (headers["content-type"], headers["content-length"]) == ("audio/wav", str(len(LONG)))
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%A4%20b.bin"
    assert (headers["accept-ranges"], headers["x-content-type-options"]) == ("bytes", "nosniff")
    assert headers["cache-control"] == "private"
    again = client.get("/scan", headers={"if-none-match": f'"x", W/{headers["etag"]}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", headers["etag"])
    head = client.head("/scan")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(LONG)))


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=300000-700000", 300_000, 700_001),
        ("bytes=-5", len(LONG) - 5, len(LONG)),
        ("bytes=1279999-", len(LONG) - 1, len(LONG)),
        ("bytes=5-99999999", 5, len(LONG)),
        ("bytes=-99999999", 0, len(LONG)),
    ],
)
def test_a_range_is_sent_alone(client: TestClient, asked: str, start: int, end: int) -> None:
    answer = client.get("/scan", headers={"range": asked})
    assert (answer.status_code, answer.content == LONG[start:end]) == (206, True)
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(LONG)}"
    assert answer.headers["content-length"] == str(end - start)
    head = client.head("/scan", headers={"range": asked})
    assert (head.status_code, head.content, head.headers["content-length"]) == (206, b"", str(end - start))


@pytest.mark.parametrize("asked", ["bytes=1280000-", "bytes=-0", "bytes=9999999-99999999"])
def test_a_range_outside_of_the_content_is_refused(client: TestClient, asked: str) -> None:
    answer = client.get("/scan", headers={"range": asked})
    assert (answer.status_code, answer.content) == (416, b"")
    assert answer.headers["content-range"] == f"bytes */{len(LONG)}"


@pytest.mark.parametrize("asked", ["bytes=5-1", "bytes=-", "lines=0-1", "bytes=0-1,5-6", "bytes=a-b", ""])
def test_other_ranges_get_the_whole_content(client: TestClient, asked: str) -> None:
    assert client.get("/scan", headers={"range": asked}).content == LONG


def test_a_range_of_another_version_gets_the_whole_content(client: TestClient) -> None:
    tag = client.head("/scan").headers["etag"]
    assert client.get("/scan", headers={"range": "bytes=0-1", "if-range": '"other"'}).content == LONG
    assert client.get("/scan", headers={"range": "bytes=0-1", "if-range": tag}).content == LONG[:2]


def test_an_upload_that_is_too_long_is_a_413() -> None:
    with TestClient(application(AsyncDatabase("memory://", models=MODELS))) as client:
        assert client.put("/scan", files={"file": ("a", b"x" * 2_000_001)}).status_code == 413
        assert client.get("/scan").status_code == 404


def test_content_that_was_removed_is_a_410() -> None:
    db = Database("memory://", models=MODELS)
    app = FastAPI(lifespan=lifespan(db))
    add_error_handlers(app)
    scan = db[Paper].create(id=1, scan=Blob(b"x", max_bytes=1)).scan
    assert scan is not None
    gone = scan
    db.kv.unsafe().delete(("__kvmodels__", "blob", scan.stored.id, 0))

    def download() -> BlobResponse:
        return BlobResponse(gone, inline=True)

    app.get("/scan", response_model=None)(download)
    with TestClient(app) as client:
        assert client.get("/scan").status_code == 410


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_no_more_is_read_when_the_client_has_left(is_async: bool) -> None:
    sent: list[bytes] = []

    async def scene() -> None:
        left = asyncio.Event()

        async def receive() -> Message:
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message.get("body", b""))
            if len(sent) == 3:
                left.set()
            await asyncio.sleep(0)

        db: Any = (AsyncDatabase if is_async else Database)("memory://", models=MODELS)
        if is_async:
            await db.open()
        made = db[Paper].create(id=1, scan=Blob(LONG * 10, max_bytes=len(LONG) * 10))
        scan = (await made if is_async else made).scan
        await BlobResponse(scan)({"type": "http", "method": "GET", "headers": []}, receive, send)
        if is_async:
            await db.close()

    asyncio.run(scene())
    assert len(sent) < 20 < len(LONG) * 10 // 262_144


@pytest.mark.parametrize("kind", ["form", "stream"])
def test_an_upload_that_the_client_breaks_off_leaves_nothing_after_a_day_and_a_sweep(kind: str) -> None:
    clock = Clock()
    db = AsyncDatabase("memory://", models=MODELS, clock=clock)
    app = application(db)

    async def streamed(request: Request, papers: AsyncRepo[Paper]) -> None:
        await papers.create(id=1, scan=Blob(request.stream(), max_bytes=100_000_000))

    app.put("/stream")(streamed)
    head = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n' if kind == "form" else b""
    bodies = iter([head + LONG, LONG, LONG])

    async def receive() -> Message:
        if (body := next(bodies, None)) is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": True}

    async def send(_: Message) -> None:
        pass

    async def scene() -> None:
        async with app.router.lifespan_context(app):
            headers = [(b"content-type", b"multipart/form-data; boundary=b")]
            scope = {"type": "http", "method": "PUT", "headers": headers, "query_string": b"",
                     "path": "/scan" if kind == "form" else "/stream"}  # fmt: skip
            with suppress(ClientDisconnect):
                await app(scope, receive, send)
            assert not await db[Paper].all().exists()
            left = [one async for one in db.kv.unsafe().list(prefix=("__kvmodels__", "loose"))]
            assert len(left) == (1 if kind == "stream" else 0)
            clock.ms += DAY_MS
            assert await db.sweep_blobs() == len(left)
            rows = [one.key async for one in db.kv.unsafe().list(prefix=("__kvmodels__",))]
            assert {"blob", "loose"}.isdisjoint(key[1] for key in rows)

    asyncio.run(scene())
