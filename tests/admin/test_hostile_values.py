"""Values that try to leave their place: scripts, long texts, texts from right to left, control characters."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import pytest

from kvmodels import Field, Indexed, KvModel, PrimaryKey
from tests.admin.html import ParsedPage
from tests.admin.shop import browsed

SCRIPT = "</textarea></script><script>alert(1)</script><img src=x onerror=alert(1)>\" onmouseover='alert(1)"
TEXTS = {
    "script": SCRIPT,
    "template": "{{ 7 * 7 }}{% raw %}${7*7}",
    "long": "a" * 1_000_000,
    "long-script": SCRIPT * 1_000,
    "right-to-left": "\u202eevil\u2066 שלום",
    "controls": "\x00\x07\x1b[31m\x7f\r\n\u2028",
    "lines": "\n\nfirst\n\tsecond\n",
    "url": "javascript:alert(1)",
    "empty": "",
}


class Note(KvModel, collection="notes"):
    id: PrimaryKey[str]
    text: str
    short: Indexed[str] = Field(default="")
    more: list[str] = Field(default_factory=list)
    data: bytes = b""


@pytest.fixture
def kv_models() -> Sequence[type[KvModel]]:
    return (Note,)


@pytest.fixture
def notes(kv_db):
    for name, text in TEXTS.items():
        kv_db[Note].create(
            id=f"{name}:{text[:100]}", text=text, short=text[:100], more=[text[:200]], data=text[:50].encode()
        )
    return kv_db[Note]


def test_no_value_becomes_markup_on_any_page(kv_db, notes):
    kv_db.kv.set(("<script>", SCRIPT), SCRIPT)
    kv_db.kv.enqueue(SCRIPT, keys_if_undelivered=[(SCRIPT,)])
    places: list[tuple[str, dict[str, str]]] = [
        ("records/notes", {}),
        ("records/notes", {"short": SCRIPT[:100]}),
        ("records/notes", {"text__icontains": SCRIPT}),
        ("records/notes", {"search": SCRIPT}),
        ("records/notes", {SCRIPT: "1"}),
        ("records/notes", {"order_by": SCRIPT}),
        ("records/notes", {"after": SCRIPT}),
        ("records/notes/record", {"id": SCRIPT}),
        ("keys", {}),
        ("keys", {"prefix": '["notes"]'}),
        ("keys", {"prefix": '["<script>"]'}),
        ("keys", {"prefix": SCRIPT}),
        ("query", {"collection": "notes", "lookups": f"short='{SCRIPT.replace(chr(39), '')}'"}),
        ("query", {"collection": "notes", "lookups": SCRIPT}),
        ("query", {"collection": SCRIPT}),
        ("queue", {}),
        ("jobs", {"id": SCRIPT}),
        *((f"records/notes/{page}", {"id": note.id}) for note in notes.all() for page in ("record", "edit")),
    ]
    with browsed(kv_db) as client:
        for path, query in places:
            answer = client.get(f"/admin/{path}", params=query)
            page = ParsedPage(answer.text)
            assert answer.status_code in (200, 400, 404), (path, query)
            assert not page.inline_scripts, (path, query)
            assert not page.handlers, (path, query)
            assert all(str(script["src"]).startswith("http://testserver/admin/static/") for script in page.scripts)
            assert "\u202e" not in answer.text, (path, query)
            assert "\x00" not in answer.text, (path, query)
            assert len(answer.text) < 700_000, (path, query)
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self';" in policy
            assert "unsafe" not in policy


def test_a_form_sends_every_text_back_unchanged(kv_db, notes):
    with browsed(kv_db) as client:
        for note in list(notes.all()):
            query = {"id": note.id}
            page = ParsedPage(client.get("/admin/records/notes/edit", params=query).text)
            sent = {name: text.replace("\n", "\r\n") for name, text in page.fields.items()}  # as browsers do
            sent["f.short"] = '"new"' if "j.short" in sent else "new"
            answer = client.post("/admin/records/notes/edit", params=query, data=sent, follow_redirects=False)
            assert answer.status_code == 303, note.id[:20]
            after = notes.get(note.id)
            assert (after.short, after.text, after.more, after.data) == ("new", note.text, note.more, note.data)


def test_a_text_with_control_characters_is_edited_as_json(kv_db, notes):
    key = notes.get(id=f"controls:{TEXTS['controls']}").id
    with browsed(kv_db) as client:
        page = ParsedPage(client.get("/admin/records/notes/edit", params={"id": key}).text)
        assert page.fields["f.text"] == '"\\u0000\\u0007\\u001b[31m\\u007f\\r\\n\\u2028"'
        assert page.fields["f.more"] == '[\n "\\u0000\\u0007\\u001b[31m\\u007f\\r\\n\\u2028"\n]'
        assert "j.more" not in page.fields  # a list is JSON anyway
        form = page.form(text='"\\u0000 changed"', data="00ff")
        client.post("/admin/records/notes/edit", params={"id": key}, data=form)
    assert (notes.get(key).text, notes.get(key).data) == ("\x00 changed", b"\x00\xff")


def test_deeply_nested_json_in_a_form_changes_nothing(kv_db, notes):
    key = next(note.id for note in notes.all() if note.id.startswith("controls"))
    stored, deep = notes.get(key), "[" * 100_000
    with browsed(kv_db) as client:
        place = f"/admin/records/notes/edit?id={quote(key)}"
        fields = ParsedPage(client.get(place).text).fields
        for name in ("f.text", "f.more", "digests"):
            answer = client.post(place, data=fields | {name: deep}, follow_redirects=False)
            assert (name, answer.status_code) in {("digests", 303), ("f.text", 422), ("f.more", 422)}
    assert notes.get(key).text == stored.text


def test_a_form_with_a_million_characters_is_stored_or_refused_whole(kv_db, notes):
    with browsed(kv_db) as client:
        form = ParsedPage(client.get("/admin/records/notes/new").text).form(id="big", text="x" * 1_000_000)
        assert client.post("/admin/records/notes/new", data=form, follow_redirects=False).status_code == 303
        form |= {"f.id": "bigger", "f.text": "x" * 2_000_000}
        assert client.post("/admin/records/notes/new", data=form).status_code == 413
    assert len(notes.get("big").text) == 1_000_000
    assert notes.get_or_none("bigger") is None
