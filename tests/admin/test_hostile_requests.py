"""No query string and no form of a client is answered with 500 by a page of the admin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from kvmodels import Database, KvModel
from tests.admin.html import ParsedPage
from tests.admin.shop import MODELS, browsed, fill
from tests.services.hostile import VALUES, answered, quoted

BOOK = b"/admin/records/books"
SOME = VALUES[::4]
KEYS = (
    b'["books"]',
    b'["books",1.5]',
    b"[[]]",
    b'[{"$int":"zz"}]',
    b'[{"$float":"nan:00"}]',
    b'[{"$bytes":"!"}]',
    b'[{"$u64":"1"}]',
    b'[{"$graph":[]}]',
    b"[1e400]",
    b'["' + b"x" * 5_000 + b'"]',
    b"[" + b"1," * 3_000 + b"1]",
)
QUERIES: dict[bytes, tuple[bytes, ...]] = {
    BOOK: (
        b"after=x&before=y",
        b"genre=essay&after=x&before=y",
        b"order_by=-title&after=x&before=y",
        b"size=x&after=%ff",
        b"add=nope&value=1",
        b"genre=essay&genre=poem",
        b"order_by=nope",
        b"&".join(b"a%d=1" % number for number in range(2_000)),
        *(b"price__in=" + quoted(value) for value in VALUES),
        *(b"bought__lt=" + quoted(value) for value in SOME),
        *(b"search=" + quoted(value) for value in SOME),
        *(b"publisher__city=" + quoted(value) for value in SOME),
    ),
    b"/admin/records/seats": (b"after=x&before=y", b"hall=%00&number=x"),
    BOOK + b"/record": (b"", b"id=1&id=2", *(b"id=" + quoted(value) for value in SOME)),
    b"/admin/records/seats/record": (*(b"number=1&hall=" + quoted(value) for value in SOME),),
    BOOK + b"/edit": (b"id=x", b"id=" + b"9" * 5_000),
    BOOK + b"/new": (b"class=nope",),
    b"/admin/keys": (
        b"prefix=%5B%22books%22%5D&after=%5B%5D",
        b"after=%5B%22a%22%2C%22b%22%5D",
        *(b"prefix=" + quoted(value) for value in (*KEYS, *SOME)),
        *(b"after=" + quoted(value) for value in KEYS),
    ),
    b"/admin/query": (
        b"collection=nope&lookups=x",
        b"collection=books&lookups=genre%3Dessay&after=x&before=y",
        *(b"collection=books&lookups=" + quoted(value) for value in VALUES),
        *(b"collection=books&lookups=price__in%3D" + quoted(value) for value in SOME),
    ),
    b"/admin/jobs": (b"id=x", b"id="),
}
"""The query strings for each page that reads parameters."""
FORM = b"application/x-www-form-urlencoded"
MANY = b"&".join(b"a%d=1" % number for number in range(1_001))
BODIES: tuple[tuple[bytes, bytes], ...] = (
    (FORM, MANY),
    (FORM, b"%ff=%fe&=&&"),
    (FORM, b"everything=1&confirmed=1&where=%5B%5B&key=id%3Dx"),
    (b"multipart/form-data", b"a=1"),
    (b"multipart/form-data; boundary=x", b"a=1"),
    (b"application/json", b"{}"),
)


@pytest.fixture
def kv_models() -> Sequence[type[KvModel]]:
    return MODELS


@pytest.fixture
def app(kv_db: Database) -> Iterator[Starlette]:
    fill(kv_db, 60)
    with browsed(kv_db) as client:
        assert isinstance(client.app, Starlette)
        yield client.app


def paths(routes: Sequence[BaseRoute], method: str, root: str = "") -> Iterator[bytes]:
    """Yield the paths of the pages of the store that answer a method."""
    for route in routes:
        found: Any = route
        path = root + found.path
        if getattr(found, "routes", None):
            yield from paths(found.routes, method, path)
        elif method in (getattr(found, "methods", None) or ()) and "{" not in path:
            yield path.encode()


@pytest.mark.servers
async def test_no_query_string_is_answered_with_500(app: Starlette):
    pages = set(paths(app.routes, "GET"))
    assert pages >= QUERIES.keys()
    for path in pages:
        for query in QUERIES.get(path, (b"after=x&before=y", b"id=%ff")):
            status, text = await answered(app, path, query)
            assert status in (200, 302, 303, 400, 404), (path, query[:90], ParsedPage(text).within("main")[-300:])


async def test_a_form_that_cannot_be_parsed_is_answered(app: Starlette):
    for path in paths(app.routes, "POST"):
        for content_type, body in BODIES:
            headers = {b"content-type": content_type, b"content-length": b"%d" % len(body)}
            status, text = await answered(app, path, b"id=1", method="POST", headers=headers, body=body)
            assert status in (400, 403), (path, content_type, body[:60], text[:200])
        for size in (b"x", b"", b"-1", b"1_0", b"9" * 5_000):
            headers = {b"content-type": FORM, b"content-length": size}
            status, _ = await answered(app, path, method="POST", headers=headers, body=b"a=1")
            assert status == 413, (path, size)


async def test_a_form_with_too_many_fields_says_so(app: Starlette):
    headers = {b"content-type": FORM, b"content-length": b"%d" % len(MANY)}
    status, text = await answered(app, BOOK + b"/new", method="POST", headers=headers, body=MANY)
    assert (status, text) == (400, "Too many fields. Maximum number of fields is 1000.")


async def test_a_position_that_is_not_below_the_prefix_is_refused(app: Starlette):
    for after in (b"[]", b'["x","y"]', b'["books","x","y"]'):
        status, text = await answered(app, b"/admin/keys", b"prefix=%5B%22books%22%5D&after=" + quoted(after))
        assert status == 400
        assert "this is not a position below the prefix" in text
