"""Forms of other sites, other ports and other sessions; the cookies and the path of ``kvmodels admin``."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient
from starlette_admin.auth import AdminUser, AuthProvider
from starlette_admin.base import BaseAdmin

from kvmodels import KvModel
from kvmodels.ext.admin import Admin, AdminPlugin
from kvmodels.ext.admin.serving import application, secret_path
from tests.admin.html import ParsedPage
from tests.admin.shop import Seat

TOKEN = "a-long-secret-token"
NEW = "records/seats/new"


@pytest.fixture
def kv_models() -> Sequence[type[KvModel]]:
    return (Seat,)


class Employees(AuthProvider):
    async def authenticate(self, request: Request) -> AdminUser | None:
        name = request.headers.get("x-employee")
        return None if name is None else AdminUser(name)


def seat(client: TestClient, place: str, **headers: str) -> dict[str, str]:
    """The form for a new seat."""
    fields = ParsedPage(client.get(f"{place}/{NEW}", headers=headers).text).fields
    return fields | {"f.hall": "blue", "f.number": "1"}


def served(db, port: int = 8765) -> TestClient:
    app = application(db, token=TOKEN, readonly=False, path=secret_path(TOKEN))
    return TestClient(app, base_url=f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),
        ({"origin": "http://testserver", "sec-fetch-site": "same-origin"}, 303),
        ({"sec-fetch-site": "none"}, 303),
        ({"origin": "https://admin.example.org", "sec-fetch-site": "same-origin"}, 303),
        ({"origin": "https://testserver"}, 303),
        ({"origin": "http://testserver:81"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://testserver.evil.example"}, 403),
        ({"origin": "http://testserver@evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://testserver", "sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://evil.example", "sec-fetch-site": "same-origin"}, 403),
    ],
)
def test_forms_of_other_origins_are_refused(kv_db, headers, status):
    app = Starlette()
    Admin(kv_db, trusted_origins=["https://admin.example.org"]).mount_to(app)
    with TestClient(app) as client:
        form = seat(client, "/admin")
        answer = client.post(f"/admin/{NEW}", data=form, headers=headers, follow_redirects=False)
        assert (answer.status_code, kv_db[Seat].count()) == (status, int(status == 303))
        assert client.get(f"/admin/{NEW}", headers=headers).status_code == 200


def test_the_plugin_refuses_forms_of_other_origins_too(kv_db):
    admin = BaseAdmin(plugins=[plugin := AdminPlugin(kv_db)], secret_key="for tests")
    plugin.add_pages(admin)
    app = Starlette()
    admin.mount_to(app)
    with TestClient(app) as client:
        form = seat(client, "/admin")
        answers = [
            client.post(f"/admin/{NEW}", data=form, headers={"origin": origin}, follow_redirects=False).status_code
            for origin in ("http://evil.example", "http://testserver")
        ]
        assert answers == [403, 303]


def test_the_token_of_a_form_is_that_of_one_user_and_browser(kv_db):
    app = Starlette()
    Admin(kv_db, auth_provider=Employees(), secret_key="for tests").mount_to(app)
    with TestClient(app) as mine, TestClient(app) as other:
        form = seat(mine, "/admin", **{"x-employee": "ada"})
        seat(other, "/admin", **{"x-employee": "ada"})
        for client, user in ((other, "ada"), (mine, "eve")):
            answer = client.post(f"/admin/{NEW}", data=form, headers={"x-employee": user})
            assert (answer.status_code, "not of this session" in answer.text) == (403, True)
        # Another port can set any cookie, also one with its own valid token.
        forged = seat(other, "/admin", **{"x-employee": "eve"})
        for name, value in other.cookies.items():
            mine.cookies.set(name, value)
        assert mine.post(f"/admin/{NEW}", data=forged, headers={"x-employee": "ada"}).status_code == 403
        assert kv_db[Seat].count() == 0


def test_a_form_of_too_many_fields_is_refused(kv_db):
    app = Starlette()
    Admin(kv_db).mount_to(app)
    with TestClient(app) as client:
        form = seat(client, "/admin") | {f"extra{number}": "x" for number in range(1_001)}
        assert client.post(f"/admin/{NEW}", data=form).status_code in (303, 400, 422)


def test_each_login_has_a_session_of_its_own_that_ends_with_the_logout(kv_db):
    path = secret_path(TOKEN)
    with served(kv_db) as client, served(kv_db) as another_process:
        assert client.get(f"{path}/keys", follow_redirects=False).status_code == 303
        assert client.get("/keys").status_code == 404
        assert client.get(f"{path}/login?token={TOKEN}x").status_code == 401
        cookies = [
            client.get(f"{path}/login?token={TOKEN}", follow_redirects=False).headers["set-cookie"] for _ in "12"
        ]
        assert cookies[0] != cookies[1]
        assert all(TOKEN not in cookie for cookie in cookies)
        assert all(
            f"Path={path};" in cookie and "HttpOnly" in cookie and "SameSite=strict" in cookie for cookie in cookies
        )
        assert all(cookie.startswith("kvmodels_admin_8765=") for cookie in cookies)
        form = seat(client, path)
        for name, value in client.cookies.items():
            another_process.cookies.set(name, value)
        assert another_process.get(f"{path}/keys", follow_redirects=False).status_code == 200
        session = client.cookies["kvmodels_admin_8765"]
        assert client.post(f"{path}/logout", data=form, follow_redirects=False).status_code == 303
        client.cookies.set("kvmodels_admin_8765", session)
        assert client.get(f"{path}/keys", follow_redirects=False).status_code == 303


@pytest.mark.parametrize("cookie", ["", ".", TOKEN, "x.y", "\u00e9"])
def test_no_other_cookie_is_a_session(kv_db, cookie):
    with served(kv_db) as client:
        headers = {b"cookie": f"kvmodels_admin_8765={cookie}".encode()}
        assert client.get(f"{secret_path(TOKEN)}/keys", headers=headers, follow_redirects=False).status_code == 303


def test_a_form_of_an_earlier_login_is_refused(kv_db):
    path = secret_path(TOKEN)
    with served(kv_db) as client:
        client.get(f"{path}/login?token={TOKEN}")
        form = seat(client, path)
        client.get(f"{path}/login?token={TOKEN}")
        assert client.post(f"{path}/{NEW}", data=form).status_code == 403
        assert client.post(f"{path}/{NEW}", data=seat(client, path), follow_redirects=False).status_code == 303
