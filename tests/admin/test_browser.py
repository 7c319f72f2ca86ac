"""The pages in a real Chromium, driven as a user drives them, on SQLite.

Chromium comes from Debian (``make servers``). Every step waits for what it needs, with a limit of a minute.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import BrowserContext, Page, Request, expect, sync_playwright
from starlette.applications import Starlette

from kvmodels import Database
from kvmodels.ext.admin import Admin
from tests.admin.shop import MODELS, Author, Book, fill
from tests.admin.test_histories import Note, Project, Ticket

pytestmark = pytest.mark.servers

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000
LISTS = ("records/books", "records/books/edit?id=3", "keys", "indexes", "query?collection=books", "check")
HISTORIES = (Project, Ticket, Note)
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def db(tmp_path_factory) -> Iterator[Database]:
    with Database(f"sqlite:///{tmp_path_factory.mktemp('shop') / 'shop.sqlite'}", models=[*MODELS, *HISTORIES]) as db:
        fill(db, 200)
        with db.acting("grace", reason="a name of a reason that is as long as reasons are, usually"):
            db[Project].create(id=7, name="Tunnel", text="words " * 50)
            db[Project].patch(7, text="words " * 40 + "others")
            db[Project].remove(7)
        yield db
        assert db.check().ok


@pytest.fixture(scope="module")
def address(db) -> Iterator[str]:
    """The address of a real server of the pages."""
    app = Starlette()
    Admin(db).mount_to(app)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/admin"
        server.should_exit = True
        thread.join(60)


@pytest.fixture(scope="module")
def context(tmp_path_factory) -> Iterator[BrowserContext]:
    assert CHROMIUM.exists(), "install Chromium with 'make servers'"
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=CHROMIUM,
            headless=True,
            args=list(FLAGS),
            viewport={"width": 1400, "height": 900},
        )
        context.set_default_timeout(PATIENCE_MS)
        yield context
        context.close()


@pytest.fixture
def page(context, address) -> Iterator[Page]:
    """A new tab on the list of books; the test fails if the browser reports an error or a refused resource."""
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.extend(_failures(request)))
    page.goto(f"{address}/records/books")
    yield page
    page.close()
    expected = "Failed to load resource: the server responded with a status of"  # of the forms that are refused
    assert [text for text in complaints if not text.startswith(expected)] == []


def _failures(request: Request) -> list[str]:
    """The failure of a request, unless the browser has left the page before its end."""
    failure = request.failure or ""
    return [] if "ERR_ABORTED" in failure else [f"{request.url}: {failure}"]


def test_filter_order_and_pages(page):
    page.select_option("#add", "genre")
    page.fill("#value", "essay")
    page.click("#filter")
    expect(page.locator(".kv-chip")).to_contain_text("genre = essay")
    page.select_option("#order_by", "genre,-price")  # is sent by the script of the page
    expect(page.locator("tbody tr:first-child .kv-key")).to_have_text("99")
    page.click("#next")
    expect(page.locator("#previous")).to_be_visible()
    page.click("#previous")
    expect(page.locator("tbody tr:first-child .kv-key")).to_have_text("99")


def test_create_with_an_error_edit_and_delete(page, db):
    page.click("#new-Book")
    page.fill("#f-id", "1000")
    page.fill("#f-isbn", "978-0000001")
    page.fill("#f-title", "Kobzar")
    page.select_option("#f-author_id", "3")
    page.click("#save")
    expect(page.locator("#f-isbn-error")).to_contain_text("Another record has this value: 1")
    expect(page.locator("#f-title")).to_have_value("Kobzar")
    page.fill("#f-isbn", "978-1000000")
    page.click("#save")
    expect(page.locator(".alert")).to_contain_text("Created 1000.")
    page.click("#edit")
    page.fill("#f-title", "Kobzar\nsecond edition")
    page.click("#save")
    expect(page.locator(".alert")).to_contain_text("Saved 1000.")
    assert db[Book].get(1000).title == "Kobzar\nsecond edition"
    page.click("#delete")
    page.click("#confirm")
    expect(page.locator("#job")).to_contain_text("1 of 1 records deleted")
    assert db[Book].get_or_none(1000) is None


def test_a_form_that_was_overtaken(page, db, address):
    page.goto(f"{address}/records/books/edit?id=5")
    page.fill("#f-title", "mine")
    db[Book].patch(5, title="theirs", genre="poem")
    page.click("#save")
    expect(page.locator("#stale")).to_contain_text("Nothing was saved.")
    expect(page.locator("#stale table")).to_contain_text("theirs")
    assert db[Book].get(5).title == "theirs"
    page.click("#save")
    expect(page.locator(".alert")).to_contain_text("Saved 5.")
    assert (db[Book].get(5).title, db[Book].get(5).genre) == ("mine", "poem")


def test_selected_records_are_deleted(page, db, address):
    db[Author].bulk_create([Author(id=n, email=f"b{n}@example.org", name="Passing") for n in range(800, 803)])
    page.goto(f"{address}/records/authors?name=Passing")
    page.check("[data-kv-all]")
    page.click("#delete-selected")
    expect(page.locator("form.kv-form")).to_contain_text("Delete 3 records of authors?")
    page.click("#confirm")
    expect(page.locator("#job")).to_contain_text("3 of 3 records deleted")


def test_keys_query_and_check(page, address):
    page.goto(f"{address}/keys")
    page.get_by_role("link", name="books_by_genre_price").click()
    page.get_by_role("link", name="poem").click()
    expect(page.locator(".kv-title h1")).to_have_text('["books_by_genre_price","poem"]')
    page.goto(f"{address}/query")
    page.select_option("#collection", "books")
    page.fill("#lookups", "genre=essay price__lt=2")
    page.click("#run")
    expect(page.locator("#plan")).to_contain_text("index genre_price")
    expect(page.locator("#rows tbody tr")).to_have_count(2)
    page.goto(f"{address}/check")
    page.click("#run")
    expect(page.locator("#report")).to_contain_text("ok")


def test_scripts_in_values_do_not_run(page, db, address):
    text = "<script>document.title = 'attacked'</script><img src=x onerror=\"document.title = 'attacked'\">"
    db[Author].create(id=900, email="evil@example.org", name=text)
    for path in ("records/authors?order_by=-pk", "records/authors/record?id=900", "records/authors/edit?id=900"):
        page.goto(f"{address}/{path}")
        expect(page.locator("body")).to_contain_text("authors")
        assert "attacked" not in page.title()
    expect(page.locator("#f-name")).to_have_value(text)
    db[Author].remove(900)


def test_history_revert_trash_and_restore(page, db, address):
    with db.acting("ada", reason="ticket 17"):
        db[Project].create(id=1, name="Bridge", text="a red house")
        db[Ticket].create(id=10, project=1)
    with db.acting("grace"):
        db[Project].patch(1, text="a blue house")
    page.goto(f"{address}/records/projects/record?id=1")
    page.click("#tab-history")
    expect(page.locator(".kv-gone")).to_have_text("red")
    expect(page.locator(".kv-new")).to_have_text("blue")
    expect(page.locator(".kv-version").last).to_contain_text("ticket 17")
    page.get_by_role("button", name="Revert to this").click()
    expect(page.locator(".alert")).to_contain_text("Reverted 1.")
    assert db[Project].get(1).text == "a red house"
    page.click("#delete")
    expect(page.locator("form.kv-form")).to_contain_text("can be restored from the trash")
    page.click("#confirm")
    expect(page.locator("#job")).to_contain_text("1 of 1 records deleted")
    page.goto(f"{address}/records/projects")
    page.click("#trash")
    page.click("[data-kv-also='id=1']")
    expect(page.locator(".alert")).to_contain_text("Restored 1 and 1 other record.")
    assert db[Ticket].get(10).project == 1


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_pages_fit_the_window_in_both_colours(page, address, width, colours):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=colours)
    versions = ("records/projects/history?id=7", "records/projects/trash")
    for path in ("", *LISTS, *versions):
        page.goto(f"{address}/{path}")
        expect(page.locator("html")).to_have_attribute("data-bs-theme", colours)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_the_colours_are_switched_and_kept(page, address):
    page.emulate_media(color_scheme="light")
    page.click("[data-kv-colours]")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    page.goto(f"{address}/keys")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    page.click("[data-kv-colours]")
    page.evaluate("localStorage.clear()")
