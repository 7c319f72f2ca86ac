"""The pages of a collection with a history: who changed what, reverts, and the trash with its restores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient
from starlette_admin.auth import AdminUser, AuthProvider

from kvmodels import CASCADE, SET_NULL, Field, ForeignKey, History, KvModel, PrimaryKey, Unique
from kvmodels.ext.admin.differences import difference
from tests.admin.html import ParsedPage
from tests.admin.shop import browsed


class Project(KvModel, collection="projects"):
    id: PrimaryKey[int]
    name: Unique[str]
    text: str = ""

    class Meta:
        history = History()


class Ticket(KvModel, collection="tickets"):
    id: PrimaryKey[int]
    project: Annotated[ForeignKey[int, Project], CASCADE]

    class Meta:
        history = History()


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    project: Annotated[ForeignKey[int | None, Project], SET_NULL] = Field(default=None)


@pytest.fixture
def kv_models() -> Sequence[type[KvModel]]:
    return (Project, Ticket, Note)


@pytest.fixture
def filled(kv_db):
    with kv_db.acting("ada", reason="the start"):
        kv_db[Project].create(id=1, name="old & red", text="a red house")
    with kv_db.acting("grace", reason="ticket <17>"):
        kv_db[Project].patch(1, text="a blue house")
    kv_db[Ticket].bulk_create([Ticket(id=n, project=1) for n in (10, 11)])
    kv_db[Note].create(id=5, project=1)
    return kv_db


class Employees(AuthProvider):
    async def authenticate(self, request: Request) -> AdminUser | None:
        return AdminUser("ü" * 150)


def posted(client: TestClient, path: str, source: str = "check", **form: str):
    token = ParsedPage(client.get(f"/admin/{source}").text).fields["csrftoken"]
    return client.post(f"/admin/records/projects/{path}", data={**form, "csrftoken": token})


def test_the_history_shows_who_changed_what_side_by_side(filled):
    with browsed(filled) as client:
        text = client.get("/admin/records/projects/history?id=1").text
        page = ParsedPage(text)
    assert page.within("kv-actor") == "grace ada"
    assert page.within("kv-reason") == "ticket <17> the start"
    assert (page.within("kv-gone"), page.within("kv-new")) == ("red", "blue")
    assert page.within("kv-before") == "a red house"
    assert "<17>" not in text


def test_a_revert_writes_what_was_unless_the_record_has_changed_since(filled):
    first = filled[Project].history(1).page(20).items[-1].versionstamp
    with browsed(filled) as client:
        seen = filled[Project].get(1).versionstamp
        filled[Project].patch(1, text="later")
        answer = posted(client, "revert?id=1", begin=first, version=seen)
        assert answer.status_code == 409
        assert "has changed since" in ParsedPage(answer.text).within("#problem")
        assert posted(client, "revert?id=1", begin="0" * 20, version="").status_code == 422
        form = ParsedPage(client.get("/admin/records/projects/history?id=1").text).fields
        answer = posted(client, "revert?id=1", begin=first, version=form["version"])
    assert "Reverted 1." in answer.text
    assert filled[Project].get(1).text == "a red house"


def test_what_a_user_writes_has_the_name_of_the_user(filled):
    with browsed(filled, auth_provider=Employees()) as client:
        page = ParsedPage(client.get("/admin/records/projects/edit?id=1").text)
        token = page.fields["csrftoken"]
        client.post("/admin/records/projects/edit?id=1", data=page.form(text="by the page"))
        answer = client.post(
            "/admin/records/projects/delete", data={"key": "id=1", "confirmed": "1", "csrftoken": token}
        )
        assert "1 of 1 records deleted" in answer.text
    last, *_ = filled[Project].history(1)
    assert last.record.text == "by the page"
    assert (last.actor, last.ended.actor) == ("ü" * 100, "ü" * 100)


def test_the_trash_restores_a_record_alone_or_with_what_went_with_it(filled):
    filled[Project].remove(1)
    with browsed(filled) as client:
        page = ParsedPage(client.get("/admin/records/projects/trash").text)
        assert "old & red" in page.within("#removed")
        assert "Restored 1." in posted(client, "restore?id=1").text
        assert [one.id for one in filled[Ticket].all()] == []
        filled[Project].remove(1)
        filled[Project].restore(1)
        filled[Ticket].bulk_create([Ticket(id=n, project=1) for n in (10, 11)])
        filled[Note].patch(5, project=1)
        filled[Project].remove(1)
        assert "Restored 1 and 3 other records." in posted(client, "restore?id=1", also="1").text
        assert ParsedPage(client.get("/admin/records/projects/trash").text).within("kv-empty") == "The trash is empty."
        assert posted(client, "restore?id=1").status_code == 404
    assert [one.id for one in filled[Ticket].all()] == [10, 11]
    assert filled[Note].get(5).project == 1


def test_a_refused_value_can_be_changed_before_the_restore(filled):
    filled[Project].remove(1)
    filled[Project].create(id=2, name="old & red")
    with browsed(filled) as client:
        answer = posted(client, "restore?id=1", also="1")
        page = ParsedPage(answer.text)
        assert answer.status_code == 422
        assert "Another record has this value: 2" in page.within("#f-name-error")
        assert "also" in page.fields
        answer = client.post("/admin/records/projects/restore?id=1", data=page.form(name="new"))
        assert "Restored 1 and 3 other records." in answer.text
    assert (filled[Project].get(1).name, filled[Project].get(1).text) == ("new", "a blue house")


@pytest.mark.parametrize(
    ("rights", "path", "form", "status"),
    [
        (set(), "revert?id=1", {"begin": "0" * 20}, 403),
        ({("edit", Project)}, "restore?id=1", {}, 403),
        ({("create", Project)}, "restore?id=1", {}, 200),
        ({("create", Project), ("create", Ticket)}, "restore?id=1", {"also": "1"}, 403),
        ({("create", Project), ("edit", Note)}, "restore?id=1", {"also": "1"}, 403),
        ({("create", Project), ("create", Ticket), ("edit", Note)}, "restore?id=1", {"also": "1"}, 200),
    ],
)
def test_a_restore_needs_the_rights_for_all_that_it_writes(filled, rights, path, form, status):
    filled[Project].remove(1)

    def allowed(_request: Request, action: str, model: type[KvModel] | None) -> bool:
        return action == "view" or (action, model) in rights

    with browsed(filled, permission=allowed) as client:
        assert posted(client, path, **form).status_code == status
    assert (filled[Project].get_or_none(1) is not None) == (status == 200)


def test_a_collection_without_a_history_has_neither_page(filled):
    with browsed(filled) as client:
        assert client.get("/admin/records/notes/trash").status_code == 404
        assert "tab-history" not in ParsedPage(client.get("/admin/records/notes/record?id=5").text).links
        assert "tab-history" in ParsedPage(client.get("/admin/records/projects/record?id=1").text).links


def test_long_values_are_compared_with_bounded_work():
    before = "same " * 5_000 + "old " * 3_000 + "end"
    found = difference("text", before, before.replace("old", "new"))
    assert found.before is not None
    assert sum(len(piece.text) for piece in found.before) < 3_000
    assert [piece.changed for piece in found.before] == [False, True, False]
