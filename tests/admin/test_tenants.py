"""The admin page of one tenant, and the list of tenants with the pages of each: a page shows the keys of one alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from kvmodels import AsyncDatabase, Database
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.url import open_engine
from kvmodels.ext.admin import Admin
from kvmodels.ext.admin.pages.store_page import tenant_path
from kvmodels.ext.admin.serving import application
from kvmodels.ext.admin.tenants.mounting import tenant_of_path
from kvmodels.schema.compile.model import KvModel
from kvmodels.testing.watched_engine import EngineScript
from tests.admin.html import ParsedPage
from tests.admin.test_rows_read import RowCounter
from tests.tenants.models import TENANT_MODELS, Account, User

TOKEN = "a token of enough characters"
PAGES = ("", "keys", "indexes", "query", "schema", "check", "queue", "jobs", "records/users")
NAMES = ("acme", "initech", "a/b", "..", "ü ~", "<b>")


def fill(db: Database) -> None:
    for name in NAMES:
        db.create_tenant(name)
        db.tenant(name)[User].create(id=1, email=f"{NAMES.index(name)}@example.org", color="red")


@pytest.fixture
def db() -> Iterator[Database]:
    with Database("memory://", models=[Account], tenant_models=TENANT_MODELS) as one:
        fill(one)
        one[Account].create(id=1, email="account@example.org")
        yield one


@contextmanager
def logged_in(db: Database, **options: Any) -> Iterator[TestClient]:
    app = application(db, token=TOKEN, readonly=False, path="/admin", hosts=("*",))
    with TestClient(app, **options) as client:
        client.get(f"/admin/login?token={TOKEN}")
        yield client


def opened(db: AsyncDatabase) -> Any:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with db:
            yield

    return lifespan


def token_in(client: TestClient, path: str) -> str:
    return client.get(path).text.partition('name="csrftoken" value="')[2].partition('"')[0]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_a_tenant_shows_its_records_alone(db: Database, page: str):
    with logged_in(db.tenant("acme")) as client:
        answer = client.get(f"/admin/{page}")
        assert answer.status_code == 200, answer.text
        assert ("Collections of the tenant acme" in answer.text) is (page == "")
        assert "initech" not in answer.text
        assert ("0@example.org" in answer.text) is (page in ("query", "records/users"))
        assert "/tenants" not in answer.text


def test_the_pages_of_each_tenant_of_a_store_show_its_records_alone(db: Database):
    with logged_in(db) as client:
        for position, name in enumerate(NAMES):
            for page in PAGES if position == 1 else ("records/users",):
                answer = client.get(f"/admin{tenant_path(name)}{page}")
                assert answer.status_code == 200, answer.text
                shown = ParsedPage(answer.text)
                assert shown.links["all-tenants"] == "/admin/tenants"
                menu = {one for one in answer.text.split('"') if one.endswith("/records/users")}
                assert f"/admin{tenant_path(name)}records/users" in menu
                assert "/admin/records/users" not in menu
                assert (f"{position}@example.org" in answer.text) is (page in ("query", "records/users"))
                assert "accounts" not in answer.text
        assert "/records/users" not in client.get("/admin/").text


def test_the_list_of_tenants_has_pages_and_reads_only_the_rows_that_it_shows():
    engine = RowCounter(open_engine("memory://"), EngineScript(), lossy=False)
    with Database.from_engine(engine, DatabaseCore((Account,), tenant_models=TENANT_MODELS)) as db:
        for number in range(120):
            db.create_tenant(f"t{number:03}")
        with logged_in(db) as client:
            path: str | None = "/admin/tenants"
            found: list[str] = []
            while path:
                engine.rows = 0
                page = ParsedPage(client.get(path).text)
                assert engine.rows <= 51
                found += page.within("kv-key").split()
                path = page.links.get("next")
            assert found == [f"t{number:03}" for number in range(120)]
            assert ParsedPage(client.get("/admin/tenants?prefix=t11").text).within("kv-key").split() == found[110:]
            assert "No tenants with such names" in client.get("/admin/tenants?prefix=x").text
            client.get(f"/admin{tenant_path('t007')}")
            engine.rows = 0
            assert client.get(f"/admin{tenant_path('t007')}").status_code == 200
            assert engine.rows <= 20


def test_records_are_changed_in_the_tenant_of_the_form(db: Database):
    with logged_in(db, follow_redirects=False) as client:
        users = f"/admin{tenant_path('a/b')}records/users"
        page = ParsedPage(client.get(f"{users}/new").text)
        values = page.form(id="7", email="seven@example.org", color="red")
        answer = client.post(f"{users}/new", data=values)
        assert (answer.status_code, answer.headers["location"].startswith(users)) == (303, True), answer.text
        assert db.tenant("a/b")[User].get(7).email == "seven@example.org"
        assert [db.tenant(name)[User].count() for name in NAMES] == [1, 1, 2, 1, 1, 1]
        assert client.post(f"{users}/new", data=values | {"csrftoken": "x"}).status_code == 403


def test_results_of_a_check_and_jobs_are_those_of_the_tenant_of_the_page(db: Database):
    acme, other = (f"/admin{tenant_path(name)}" for name in ("acme", "initech"))
    with logged_in(db) as client:
        token = token_in(client, f"{acme}check")
        for path in ("check/run", "indexes/measure"):
            assert client.post(f"{acme}{path}", data={"csrftoken": token}).status_code == 200
        for page, word in (("jobs", "Check the store"), ("jobs", "Measure the store"), ("check", "ok")):
            assert word in client.get(f"{acme}{page}").text, page
        for place in (other, "/admin/"):
            assert "the store" not in ParsedPage(client.get(f"{place}jobs").text).within("kv-key")
            assert "Measure the store" not in client.get(f"{place}jobs").text
            assert client.get(f"{place}check").text != client.get(f"{acme}check").text
        job = client.get(f"{acme}jobs").text.partition("jobs?id=")[2].partition('"')[0]
        assert client.get(f"{acme}jobs?id={job}").status_code == 200
        assert client.get(f"{other}jobs?id={job}").status_code == 404


def test_a_tenant_that_is_unknown_or_removed_and_a_path_that_is_no_name_are_not_found(db: Database):
    with logged_in(db) as client:
        assert client.get(f"/admin{tenant_path('initech')}").status_code == 200
        db.remove_tenant("initech")
        for path in (tenant_path("initech"), tenant_path("unknown"), "/tenants/a.b/", "/tenants/~FF/", "/tenants/~zz/"):
            assert client.get(f"/admin{path}").status_code == 404, path
        assert client.get(f"/admin{tenant_path('x' * 65)}").status_code in (400, 404)
        assert "initech" not in ParsedPage(client.get("/admin/tenants").text).within("kv-key")


def test_without_a_session_the_pages_of_tenants_lead_to_the_login(db: Database):
    app = application(db, token=TOKEN, readonly=False, path="/admin", hosts=("*",))
    with TestClient(app, follow_redirects=False) as client:
        for path in ("/admin/tenants", f"/admin{tenant_path('acme')}", f"/admin{tenant_path('acme')}login"):
            answer = client.get(path)
            assert (answer.status_code, "/admin/login" in answer.headers["location"]) == (303, True)


def test_a_permission_is_asked_with_the_tenant_in_the_path(db: Database):
    asked: list[Any] = []

    def permission(request: Request, action: str, model: type[KvModel] | None) -> bool:
        asked.append(request.path_params.get("tenant"))
        return asked[-1] != "initech"

    app = Starlette()
    Admin(db, permission=permission, secret_key="for tests").mount_to(app)
    with TestClient(app) as client:
        assert client.get(f"/admin{tenant_path('acme')}records/users").status_code == 200
        assert client.get(f"/admin{tenant_path('initech')}records/users").status_code == 403
        assert set(asked) == {"acme", "initech"}


def test_an_asynchronous_database_has_the_pages_of_its_tenants_too(tmp_path):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Database(url, models=[Account], tenant_models=TENANT_MODELS) as one:
        fill(one)
    shared = AsyncDatabase(url, models=[Account], tenant_models=TENANT_MODELS)
    app = Starlette(lifespan=opened(shared))
    Admin(shared, secret_key="for tests").mount_to(app)
    with TestClient(app) as client:
        answer = client.get(f"/admin{tenant_path('initech')}records/users")
        assert "1@example.org" in answer.text, answer.text
        assert "initech" in client.get("/admin/tenants").text


@pytest.mark.parametrize("name", [*NAMES, "~", "~41", "%2F", "日本", "x" * 64])
def test_the_path_of_a_tenant_names_it(name: str):
    assert tenant_of_path(tenant_path(name).split("/")[2]) == name
