"""The admin page of one tenant: each page shows its keys alone."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from kvmodels import Database
from kvmodels.ext.admin.serving import application
from tests.tenants.models import TENANT_MODELS, Account, User

TOKEN = "a token of enough characters"
PAGES = ("", "keys", "indexes", "query", "schema", "check", "queue", "jobs", "records/users")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_a_tenant_shows_its_records_alone(page):
    with Database("memory://", models=[Account], tenant_models=TENANT_MODELS) as db:
        for name in ("acme", "initech"):
            db.create_tenant(name)
            db.tenant(name)[User].create(id=1, email=f"{name}@example.org", color="red")
        app = application(db.tenant("acme"), token=TOKEN, readonly=False, path="/admin", hosts=("*",))
        with TestClient(app) as client:
            client.get(f"/admin/login?token={TOKEN}")
            answer = client.get(f"/admin/{page}")
            assert answer.status_code == 200, answer.text
            assert ("Collections of the tenant acme" in answer.text) is (page == "")
            assert "initech" not in answer.text
            assert ("acme@example.org" in answer.text) is (page in ("query", "records/users"))
