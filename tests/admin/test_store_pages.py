"""The pages about the whole store: keys, indexes, query, schema, check, queue and jobs; read-only mode and roles."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient
from starlette_admin.auth import AdminUser, AuthProvider
from starlette_admin.base import BaseAdmin

from kvmodels import AsyncDatabase, Database, Field, Indexed, KvModel, OperationCounters, PrimaryKey
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Delete, ReadRange, ReadResult, after_prefix
from kvmodels.engines.url import open_engine
from kvmodels.ext.admin import Admin, AdminPlugin
from kvmodels.ext.admin.jobs import Job, Jobs
from kvmodels.ext.admin.serving import application
from kvmodels.flows.bulk.options_and_results import BulkProgress
from kvmodels.flows.evolution.throttle import SchemaProgress
from tests.admin.html import ParsedPage
from tests.admin.shop import MODELS, Book, browsed, fill


@pytest.fixture
def kv_models() -> Sequence[type[KvModel]]:
    return MODELS


class Plant(KvModel, collection="plants"):
    id: PrimaryKey[int]
    name: str = ""


class NamedPlant(KvModel, collection="plants"):
    id: PrimaryKey[int]
    name: Indexed[str] = Field(default="")


def shown(client: TestClient, path: str, status: int = 200) -> ParsedPage:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return ParsedPage(answer.text)


def sent(client: TestClient, path: str, back: str, **fields: str) -> ParsedPage:
    token = shown(client, back).fields["csrftoken"]
    answer = client.post(path, data={"csrftoken": token, **fields})
    assert answer.status_code == 200, answer.text
    return ParsedPage(answer.text)


def test_keys_are_a_tree_with_explanations(kv_db):
    fill(kv_db, 120)
    kv_db.kv.set(("settings", "dark"), {"on": True})
    with browsed(kv_db) as client:
        roots = shown(client, "/admin/keys").within("kv-tree")
        assert "books_by_genre_price" in roots
        assert "settings" in roots
        first = shown(client, '/admin/keys?prefix=["books"]')
        assert "record 50 of books" in first.within("kv-tree")
        assert "record 51 of books" not in first.within("kv-tree")
        assert "record 51 of books" in shown(client, first.links["next"]).within("kv-tree")
        assert '"on": true' in shown(client, '/admin/keys?prefix=["settings","dark"]').within("#value")
        page = shown(client, '/admin/keys?prefix=["books",7]')
        assert "Book 7" in shown(client, page.links["record"]).within("kv-record")
        assert "this is not a key" in shown(client, "/admin/keys?prefix=books", 400).within("#failure")


def test_a_query_shows_rows_and_plan_side_by_side(kv_db):
    fill(kv_db, 30)
    with browsed(kv_db) as client:
        page = shown(client, "/admin/query?collection=books&lookups=genre=essay price__lt=10 order_by=-price")
        assert "1 range of index genre_price" in page.within("#plan")
        assert not page.within("#scan")
        assert "978-0000009" in page.within("#rows")
        page = shown(client, '/admin/query?collection=books&lookups=title="Book 7"')
        assert "No index serves the whole query" in page.within("#scan")
        assert "title" in page.within("#plan")
        assert "978-0000007" in page.within("#rows")
        for wrong in ("colour=red", "price", "price=cheap", '"'):
            assert "KV" in shown(client, f"/admin/query?collection=books&lookups={wrong}").within("#failure")


def test_the_check_shows_its_findings_and_repairs_them(kv_db, kv_url):
    fill(kv_db, 10)
    with browsed(kv_db) as client:
        assert "ok" in sent(client, "/admin/check/run", "/admin/check").within("#report")
        _remove_entry(kv_url, "books_by_genre_price", "poem")
        assert "missing books.genre_price 10" in sent(client, "/admin/check/run", "/admin/check").within("#report")
        assert "repaired" in sent(client, "/admin/check/run", "/admin/check", repair="1").within("#report")
        kv_db.kv.unsafe().set(("seats", "blue"), "of another program")
        found = sent(client, "/admin/check/run", "/admin/check", repair="1").within("#report")
        assert "Repair: “also delete unreadable rows” deletes it." in found
        assert "removed" in sent(client, "/admin/check/run", "/admin/check", repair="all").within("#report")
    assert kv_db.check().ok


def _remove_entry(url: str, *prefix: str) -> None:
    """Remove the first index entry below a prefix, past the library."""
    engine = open_engine(url)
    found = engine.read([ReadRange(encode_key(prefix), after_prefix(encode_key(prefix)), 1)])
    assert isinstance(found, ReadResult)
    engine.commit(AtomicWrite((), (Delete(found.ranges[0][0].key),)))
    engine.close()


def test_indexes_show_state_size_and_use_and_are_built(kv_url):
    with Database(kv_url, models=[Plant]) as old:
        old[Plant].bulk_create([Plant(id=number, name=f"n{number}") for number in range(5)])
        with Database(kv_url, models=[NamedPlant], observer=OperationCounters()) as db, browsed(db) as client:
            page = shown(client, "/admin/indexes")
            assert "plants .name index name" in page.within("kv-table")
            assert "readable" not in page.within("kv-table")
            sent(client, "/admin/indexes/build", "/admin/indexes")
            assert "records" not in shown(client, "/admin/").within("kv-tile")
            sent(client, "/admin/indexes/measure", "/admin/indexes")
            assert "≈ 5 records" in shown(client, "/admin/").within("kv-tile")
            assert "as measured at" in client.get("/admin/").text
            shown(client, "/admin/records/plants?name=n3")
            assert "readable 5" in shown(client, "/admin/indexes").within("kv-table")
            assert re.search(r"Uses by this process since <time datetime=.20\d\d-", client.get("/admin/indexes").text)
            assert shown(client, "/admin/indexes").within("kv-figure").endswith("1")


def test_the_schema_page_applies_the_plan(kv_url):
    with Database(kv_url, models=[Plant]) as old:
        old[Plant].create(id=1)
        with Database(kv_url, models=[NamedPlant]) as db, browsed(db) as client:
            assert "plants.name" in shown(client, "/admin/schema").within("kv-step")
            assert "complete" in sent(client, "/admin/schema/apply", "/admin/schema").within("#job")
            assert "as the models declare it" in shown(client, "/admin/schema").within("#current")


def test_the_queue_and_the_locks_are_listed(kv_db):
    kv_db.kv.enqueue({"mail": "<b>"}, keys_if_undelivered=[("failed", 1)])
    with browsed(kv_db) as client, kv_db.kv.lock("report"):
        page = shown(client, "/admin/queue")
    assert '{ "mail": "<b>" }' in page.within("kv-table")
    assert "report yes" in page.within("kv-table")


def test_a_read_only_page_changes_nothing(kv_db):
    fill(kv_db, 5)
    with browsed(kv_db, readonly=True) as client:
        page = shown(client, "/admin/records/books")
        assert "Read-only" in page.within("kv-note")
        assert not page.within("#delete-selected")
        token = shown(client, "/admin/check").fields["csrftoken"]
        for path in ("books/new", "books/edit?id=1", "books/delete"):
            form = {"csrftoken": token, "key": "id=1", "confirmed": "1", "f.title": "x"}
            assert client.post(f"/admin/records/{path}", data=form).status_code == 403
        for path in ("indexes/build", "schema/apply"):
            assert client.post(f"/admin/{path}", data={"csrftoken": token}).status_code == 403
        assert client.post("/admin/check/run", data={"csrftoken": token, "repair": "1"}).status_code == 403
        assert "ok" in sent(client, "/admin/check/run", "/admin/check").within("#report")
    assert kv_db[Book].all().count() == 5


class Roles(AuthProvider):
    """A user is whoever the header names."""

    async def authenticate(self, request: Request) -> AdminUser | None:
        name = request.headers.get("x-user")
        return None if name is None else AdminUser(name)


def clerks_see_books(request: Request, action: str, model: type[KvModel] | None) -> bool:
    return request.state.admin_user.username == "boss" or (model is Book and action == "view")


def test_roles_decide_who_sees_and_does_what(kv_db):
    fill(kv_db, 5)
    with browsed(kv_db, auth_provider=Roles(), permission=clerks_see_books) as client:
        clerk = {"x-user": "clerk"}
        assert client.get("/admin/records/books", headers=clerk).status_code == 200
        for path in ("records/authors", "records/books/new", "records/books/edit?id=1", "keys", "indexes", "jobs"):
            assert client.get(f"/admin/{path}", headers=clerk).status_code == 403, path
        assert client.get("/admin/query?collection=authors", headers=clerk).status_code == 403
        first = client.get("/admin/", headers=clerk).text
        assert "/records/books" in first
        assert "/records/authors" not in first
        assert "/records/authors" not in client.get("/admin/records/books/record?id=1", headers=clerk).text
        assert "/records/authors" in client.get("/admin/records/books/record?id=1", headers={"x-user": "boss"}).text
        assert client.get("/admin/keys", headers={"x-user": "boss"}).status_code == 200


def test_the_served_page_wants_its_token_and_its_name(kv_db):
    token = "a-long-secret-token"
    with TestClient(application(kv_db, token=token, readonly=False), base_url="http://127.0.0.1") as client:
        assert client.get("/keys", follow_redirects=False).status_code == 303
        assert client.get("/login?token=wrong").status_code == 401
        assert client.get(f"/login?token={token}").status_code == 200
        assert client.get("/keys").status_code == 200
        assert client.get("/keys", headers={"host": "elsewhere.example"}).status_code == 400
    with pytest.raises(ValueError, match="at least 16"):
        application(kv_db, token="short", readonly=False)


async def test_an_asynchronous_database_has_the_same_pages(kv_url):
    with Database(kv_url, models=MODELS) as db:
        fill(db, 30)

        asynchronous = AsyncDatabase(kv_url, models=MODELS)
        app = Starlette()
        Admin(asynchronous).mount_to(app)
        async with asynchronous:
            pages = ("", "records/books?genre=essay", "keys", "indexes", "query?collection=books", "schema", "queue")
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
                for path in pages:
                    assert (await client.get(f"/admin/{path}")).status_code == 200, path


def test_it_is_also_a_plugin_of_another_admin(kv_db):
    plugin = AdminPlugin(kv_db)
    admin = BaseAdmin(plugins=[plugin], secret_key="for tests")
    plugin.add_pages(admin)
    app = Starlette()
    admin.mount_to(app)
    with TestClient(app) as client:
        assert "authors" in shown(client, "/admin/records/authors").within("nav-link-title")


async def test_the_page_of_a_running_job_reloads_itself_and_stops_it(kv_db):
    app = Starlette()
    admin = Admin(kv_db)
    admin.mount_to(app)

    async def work(job):
        while True:
            job.check("some of <many>", 0.25)
            await asyncio.sleep(0)

    job = await admin.backend.jobs.start("Work", "/check", work)
    assert job.task is not None
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as client:
        answer = await client.get(f"/admin/jobs?id={job.id}")
        page = ParsedPage(answer.text)
        assert "running some of <many>" in page.within("#job")
        assert 'http-equiv="refresh"' in answer.text
        assert '<progress class="kv-progress" value="0.25" aria-label="Progress">25%</progress>' in answer.text
        assert "Work running" in ParsedPage((await client.get("/admin/jobs")).text).within("kv-links")
        await client.post(f"/admin/jobs/stop?id={job.id}", data=page.fields)
        await job.task
        answer = await client.get(f"/admin/jobs?id={job.id}")
    assert "stopped some of <many>" in ParsedPage(answer.text).within("#job")
    assert 'http-equiv="refresh"' not in answer.text


async def test_a_job_is_stopped_between_two_batches():
    jobs = Jobs(lambda: None)

    async def work(job):
        job.stop()
        job.check("half")
        return ["never"]

    job = await jobs.start("Work", "/check", work)
    assert (job.state, job.progress, job.lines) == ("stopped", "half", [])

    async def fail(job):
        raise ValueError("no")

    failed = await jobs.start("Fail", "/check", fail)
    assert (failed.state, failed.lines) == ("failed", ["ValueError: no"])
    assert [one.title for one in jobs.recent()] == ["Fail", "Work"]


@pytest.mark.parametrize(
    ("progress", "text", "share"),
    [
        (BulkProgress(500, 480, 1), "500 records processed, 480 written or deleted", None),
        (BulkProgress(500, 480, 1, 2_000), "500 of 2,000 records processed, 480 written or deleted", 0.25),
        (BulkProgress(500, 480, 1, total=1_000), "500 of 1,000 records processed, 480 written or deleted", 0.5),
        (SchemaProgress("check", "books", None, 500), "check books: 500 processed", None),
        (
            SchemaProgress("migrate", "books", None, 1_500, 20, 1_000),
            "migrate books: 1,500 of about 1,000 processed, 20 written",
            1.0,
        ),
    ],
)
def test_the_progress_of_a_job_has_its_share_if_the_whole_is_known(progress, text, share):
    job = Job("Work", "/check")
    job.report(progress)
    assert (job.progress, job.share) == (text, share)
