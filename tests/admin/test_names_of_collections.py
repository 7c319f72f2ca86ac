"""Collections whose names have a meaning in URLs, routes or HTML have pages, and every link to them leads there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape
from urllib.parse import urljoin

import pytest

from kvmodels import ForeignKey, Indexed, KvModel, PrimaryKey
from tests.admin.html import ParsedPage
from tests.admin.shop import browsed

NAMES = ("a b/c?d", "../../x", "..", "{name}", "a#b%2F", "größe", "<b>&amp;")


def models_of(name: str) -> tuple[type[KvModel], type[KvModel]]:
    target = type("Target", (KvModel,), {"__annotations__": {"id": PrimaryKey[int]}}, collection=name)
    annotations = {"id": PrimaryKey[int], "name": Indexed[str], "target": ForeignKey[int, target]}  # type: ignore[valid-type]
    return target, type("Referrer", (KvModel,), {"__annotations__": annotations}, collection=f"{name}/of")


PAIRS = [models_of(name) for name in NAMES]


@pytest.fixture
def kv_models() -> Sequence[type[KvModel]]:
    return [model for pair in PAIRS for model in pair]


def test_every_link_leads_to_a_page_and_every_collection_has_its_pages(kv_db):
    for target, referrer in PAIRS:
        kv_db[target].create(id=1)
        kv_db[referrer].create(id=2, name="x", target=1)
    with browsed(kv_db) as client:
        seen, left = dict[str, str](), ["/admin/", "/admin/indexes", "/admin/keys"]
        while left:
            page = left.pop()
            answer = client.get(page)
            assert answer.status_code == 200, page
            for link in map(unescape, re.findall(r'href="([^"]*)"', answer.text)):
                place = urljoin(page, link).removeprefix("http://testserver").partition("#")[0]
                path = place.partition("?")[0]
                assert path.startswith("/admin"), link
                if "/static/" not in path and path not in seen:
                    seen[path] = place
                    left.append(place)
        pages = {path: client.get(place).text for path, place in seen.items() if path.endswith(("/record", "/new"))}
        assert len(pages) == 4 * len(NAMES)
        for name in NAMES:
            assert any(name in unescape(text) for text in pages.values()), name
        for place in (place for place in pages if place.endswith("/new")):
            form = ParsedPage(pages[place]).fields | {"f.id": "7", "f.name": "y", "f.target": "1"}
            assert client.post(place, data=form, follow_redirects=False).status_code == 303, place
    assert [kv_db[model].count() for pair in PAIRS for model in pair] == [2, 2] * len(NAMES)
