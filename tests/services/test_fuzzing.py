"""Schemathesis calls every operation of the applications with parameters and bodies that it draws from their schemas.

Half of the requests break the schema. None is answered with a status of 500 or above.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation, BaseSchema
from starlette.applications import Starlette
from starlette.testclient import TestClient

from examples import fastapi_service
from examples.tracker.app import DAY_S, create_app
from examples.tracker.models import MODELS as TRACKED
from kvmodels import AsyncDatabase, Database
from kvmodels.ext.admin import Admin
from tests.admin.html import ParsedPage
from tests.admin.shop import MODELS as SHOP
from tests.admin.shop import fill
from tests.admin.test_hostile_requests import paths
from tests.services.hostile import Seat, Thing, service

pytestmark = pytest.mark.servers

MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
PARAMETERS = (
    *("after", "before", "size", "order_by", "search", "add", "value", "class", "id", "hall", "number", "prefix"),
    *("collection", "lookups", "genre", "price__in", "bought__lt", "tags__contains", "publisher__city", "nope"),
)
FIELDS = (
    *("key", "where", "everything", "confirmed", "repair", "collection", "allow", "version", "digests"),
    *("f.id", "f.isbn", "f.title", "f.author_id", "f.price", "f.tags", "f.publisher.city", "n.note", "j.title"),
)


@pytest.fixture(autouse=True, scope="module")
def _bytes_as_text() -> None:
    # Schemathesis cannot break a schema with its own values of this format.
    schemathesis.openapi.format("binary", st.text())


def fuzz(schema: BaseSchema, *, examples: int = 10, **sent: Any) -> int:
    """Call each operation with drawn values, so often in each mode; return the number of operations."""
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    for operation in operations:
        for mode in MODES:
            fuzz_operation(operation, mode, examples, sent)
    return len(operations)


def fuzz_operation(
    operation: APIOperation[Any, Any, Any, Any], mode: schemathesis.GenerationMode, examples: int, sent: Any
) -> None:
    """Call one operation with values that fit its schema, or do not."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: schemathesis.Case) -> None:
        answer = case.call(**sent)
        assert answer.status_code < 500, case.as_curl_command()

    try:
        call()
    except Unsatisfiable:
        assert mode is MODES[1]  # an operation without parameters has no schema to break


def test_no_part_of_a_service_answers_with_500():
    app = service(AsyncDatabase("memory://fuzzed-parts", models=[Thing, Seat]))
    with Database("memory://fuzzed-parts", models=[Thing, Seat]) as db:
        db[Thing].bulk_create([Thing(text=str(number), number=number) for number in range(30)])
        assert fuzz(schemathesis.openapi.from_asgi("/openapi.json", app)) == 7
        assert db.check().ok


@pytest.mark.parametrize("name", ["fastapi_service", "tracker"])
def test_no_example_answers_with_500(name: str):
    url = f"memory://fuzzed-{name}"
    app = create_app(url) if name == "tracker" else fastapi_service.create_app(url)
    models = TRACKED if name == "tracker" else [fastapi_service.User]
    options: dict[str, Any] = {"change_log": DAY_S} if name == "tracker" else {}
    with Database(url, models=models, **options) as db:
        schema = schemathesis.openapi.from_asgi("/openapi.json", app).exclude(path_regex="events")  # they do not end
        assert fuzz(schema) > 5
        assert db.check().ok


def test_no_page_of_the_admin_answers_with_500():
    with Database("memory://", models=SHOP) as db:
        fill(db, 60)
        app = Starlette()
        Admin(db, secret_key="for tests").mount_to(app)
        with TestClient(app) as client:
            token = ParsedPage(client.get("/admin/records/books/new").text).fields["csrftoken"]
            cookies = dict(client.cookies)
        schema = schemathesis.openapi.from_dict(_described(app))
        schema.app = app
        assert fuzz(schema, examples=2, headers={"X-CSRFToken": token}, cookies=cookies) > 15
        assert db.check().ok


def _described(app: Starlette) -> dict[str, Any]:
    """Return an OpenAPI document of the pages: each takes every parameter, and each form every field."""
    text = {"type": "string"}
    fields = {"type": "object", "properties": dict.fromkeys(FIELDS, text)}
    form = {"content": {"application/x-www-form-urlencoded": {"schema": fields}}, "required": True}
    query = [{"name": name, "in": "query", "schema": text} for name in PARAMETERS]
    pages: dict[str, dict[str, Any]] = {}
    for method in ("GET", "POST"):
        for path in paths(app.routes, method):
            if b"/records/" in path and b"/books" not in path:
                continue  # the pages of the other collections have the same code
            operation: dict[str, Any] = {"parameters": query, "responses": {"200": {"description": "A page."}}}
            pages.setdefault(path.decode(), {})[method.lower()] = operation | (
                {"requestBody": form} if method == "POST" else {}
            )
    return {"openapi": "3.1.0", "info": {"title": "Admin", "version": "1"}, "paths": pages}
