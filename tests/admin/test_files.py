"""The admin page shows the size and the type of files, with a link to download them."""

from __future__ import annotations

import pytest

from kvmodels import Database
from tests.admin.shop import browsed
from tests.blobs.stores import MODELS, Paper, content


@pytest.mark.parametrize("place", ["", "/record?id=1", "/edit?id=1"])
def test_pages_of_records_show_files_without_their_content(place: str) -> None:
    with Database("memory://", models=MODELS) as db:
        db[Paper].create(id=1, scan=content(b"planted" * 1_000, content_type="text/plain"))
        with browsed(db) as client:
            page = client.get(f"/admin/records/papers{place}")
            assert page.status_code == 200
            assert "planted" not in page.text
            assert ("7,000 bytes, text/plain" in page.text) or place.startswith("/edit")


def test_a_file_is_a_download() -> None:
    with Database("memory://", models=MODELS) as db:
        db[Paper].create(id=1, scan=content(b"<script>", content_type="text/html"))
        with browsed(db) as client:
            answer = client.get("/admin/records/papers/file?id=1&file=scan", headers={"range": "bytes=1-3"})
            assert (answer.status_code, answer.content) == (206, b"scr")
            assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''papers-1-scan.htm")
            for field in ("cover", "title", "nothing", ""):
                assert client.get(f"/admin/records/papers/file?id=1&file={field}").status_code == 404


def test_an_edited_record_keeps_its_file() -> None:
    with Database("memory://", models=MODELS) as db:
        db[Paper].create(id=1, scan=content(b"1"))
        with browsed(db) as client:
            assert "Programs store files" in client.get("/admin/records/papers/edit?id=1").text
