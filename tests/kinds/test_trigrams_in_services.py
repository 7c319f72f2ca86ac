"""Parts of texts from query strings, in a web service, and from the command line."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

from kvmodels import AsyncDatabase, Database, KvModel, Page, ParsedLookups, PrimaryKey, TrigramIndex
from kvmodels.ext.fastapi import AsyncRepo, Lookups, Paging, add_error_handlers, lifespan
from tests.cli.conftest import Run, folder, run

__all__ = ["folder", "run"]

PROGRAM = """
from kvmodels import Database, KvModel, PrimaryKey, TrigramIndex


class Contact(KvModel, collection="contacts"):
    id: PrimaryKey[int]
    org: str
    name: str

    class Meta:
        indexes = (TrigramIndex("name", group="org", name="names"),)


db = Database("contacts.db", models=[Contact])
"""


class Contact(KvModel, collection="contacts"):
    id: PrimaryKey[int]
    org: str
    name: str

    class Meta:
        indexes = (TrigramIndex("name", group="org", name="names"),)


Named = Annotated[ParsedLookups, Depends(Lookups[Contact]("org", "name__icontains", "name__endswith"))]

NAMES = ("Ada Lovelace", "Grace Hopper", "Charles Babbage", "Ada Coleman", "Weiß, 50 %_*")


def contacts() -> list[Contact]:
    return [Contact(id=key, org="acme", name=name) for key, name in enumerate(NAMES, 1)]


def test_a_service_finds_parts_in_pages_and_refuses_short_ones():
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Contact])))
    add_error_handlers(app)

    @app.get("/contacts")
    async def found(
        repository: AsyncRepo[Contact],
        lookups: Named,
        paging: Annotated[Paging, Depends()],
    ) -> Page[Contact]:
        await repository.bulk_create(contacts(), on_conflict="ignore")
        return paging.linked(await repository.filter(lookups.where).page(**paging.window))

    with TestClient(app) as client:

        def ids(**parameters: str) -> list[int]:
            return [one["id"] for one in client.get("/contacts", params=parameters).json()["items"]]

        assert ids(org="acme", name__icontains="ADA") == [1, 4]
        assert ids(org="acme", name__icontains="weiss") == [5]
        assert ids(org="acme", name__icontains="%_*") == [5]
        assert ids(org="acme", name__endswith="bage") == [3]
        assert ids(org="zoo", name__icontains="ada") == []
        first = client.get("/contacts?org=acme&name__icontains=ada&size=1")
        second = client.get(first.links["next"]["url"])
        assert [one["id"] for answer in (first, second) for one in answer.json()["items"]] == [1, 4]
        for query in ("org=acme&name__icontains=ad", "name__icontains=ada"):
            refused = client.get(f"/contacts?{query}")
            assert (refused.status_code, refused.json()["code"]) == (400, "KV703")
        described = client.get("/openapi.json").json()["paths"]["/contacts"]["get"]["parameters"]
        assert {"name__icontains", "name__endswith"} <= {one["name"] for one in described}


def test_the_command_line_finds_parts(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    (folder / "contacts_app.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("KVMODELS_DATABASE", "contacts_app:db")
    with Database("contacts.db", models=[Contact]) as db:
        db[Contact].bulk_create(contacts())
    found = run("rows", "contacts", "org=acme", "name__icontains=ADA").stdout
    assert "Lovelace" in found
    assert "Coleman" in found
    assert "Hopper" not in found
    assert run("count", "contacts", "org=acme", "name__endswith=man").stdout == "1\n"
    assert "name has trigram 'ada'" in run("explain", "contacts", "org=acme", "name__icontains=ada").stdout
    refused = run("rows", "contacts", "name__icontains=ada")
    assert refused.exit_code == 1
    assert "needs one value, or a list, of 'org'" in refused.stderr
    assert "contacts.names  readable  trigram  org, name" in run("indexes").stdout
    printed = run("inspect", "-d", "contacts.db").stdout
    assert "TrigramIndex('name', group=('org',), name='names')" in printed
    (folder / "printed_app.py").write_text(printed)
    module = vars(import_module("printed_app"))
    with Database("contacts.db", models=module["MODELS"]) as db:
        model = module["Contacts"]
        assert [one.id for one in db[model].filter(org="acme", name__icontains="ada")] == [1, 4]
        assert db.check().ok
