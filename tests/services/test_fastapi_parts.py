"""The parts for FastAPI services: repositories, problems, conditions, pages and health, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from pydantic import BaseModel, ValidationError, model_validator

from kvmodels import (
    ULID,
    AsyncDatabase,
    AsyncRepository,
    ClosedError,
    Creation,
    Database,
    DecodeError,
    Field,
    ForeignKey,
    Indexed,
    KvModel,
    KvModelsError,
    NoUsableIndexError,
    Page,
    Partial,
    PrimaryKey,
    ProtectedError,
    Unique,
    UniqueViolationError,
)
from kvmodels.ext.fastapi import (
    PROBLEM_STATUS,
    AsyncRepo,
    Paging,
    Precondition,
    Repo,
    RequiredPrecondition,
    add_error_handlers,
    database,
    health,
    lifespan,
    problems,
    repository,
)


class User(KvModel, collection="users"):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    email: Unique[str]
    color: Indexed[str] = Field(default="red")


class LaterUser(KvModel, collection="users"):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    email: Unique[str]
    color: Indexed[str] = Field(default="red")
    age: Indexed[int] = Field(default=0)


class Team(KvModel, collection="teams"):
    id: PrimaryKey[int]


class Member(KvModel, collection="members"):
    id: PrimaryKey[int]
    team_id: ForeignKey[int, Team]


class NewUser(Creation[User]):
    pass


class UserPatch(Partial[User], exclude=("id",)):
    pass


class Users(AsyncRepository[User]):
    async def first_red(self) -> User | None:
        return await self.filter(color="red").first()


def service(db: AsyncDatabase) -> FastAPI:
    app = FastAPI(lifespan=lifespan(db))
    add_error_handlers(app, pages="https://example.org/errors/")
    app.get("/health")(health)

    @app.post("/users", status_code=201)
    async def create(users: AsyncRepo[User], body: NewUser, condition: Annotated[Precondition, Depends()]) -> User:
        return condition.tagged(await users.create(body))

    @app.get("/users")
    async def page(users: AsyncRepo[User], paging: Annotated[Paging, Depends()], color: str = "red") -> Page[User]:
        return paging.linked(await users.filter(color=color).page(**paging.window))

    @app.get("/users/{key}")
    async def read(users: AsyncRepo[User], key: ULID, condition: Annotated[Precondition, Depends()]) -> User:
        return condition.tagged(await users.get(key))

    @app.patch("/users/{key}")
    async def change(users: AsyncRepo[User], key: ULID, body: UserPatch, condition: RequiredPrecondition) -> User:
        return condition.tagged(await users.patch(key, body, if_version=condition.if_version))

    @app.get("/red")
    async def red(users: Annotated[Users, Depends(repository(User, Users))]) -> User | None:
        return await users.first_red()

    @app.get("/broken/{name}")
    async def broken(name: str) -> None:
        raise {cls.__name__: cls for cls in (*PROBLEM_STATUS, DecodeError)}[name]("it happened", hint="secret value")

    return app


@pytest.fixture
def kv_models():
    return [User]


@pytest.fixture
def client(kv_url, kv_db) -> Iterator[TestClient]:
    """A client of the service over the store of ``kv_db``, whose indexes are checked after the test."""
    with TestClient(service(AsyncDatabase(kv_url, models=[User]))) as opened:
        yield opened


def created(client: TestClient, email: str, **fields: Any) -> Any:
    return client.post("/users", json={"email": email, **fields})


def test_a_repository_is_a_parameter_and_not_a_part_of_the_interface(client: TestClient):
    user = created(client, "ada@x.org").json()
    assert client.get(f"/users/{user['id']}").json() == user
    assert client.get("/red").json() == user
    described = client.get("/openapi.json").json()
    assert [one["name"] for one in described["paths"]["/users"]["get"]["parameters"]] == [
        "color",
        "size",
        "after",
        "before",
    ] or {one["name"] for one in described["paths"]["/users"]["get"]["parameters"]} == {
        "color",
        "size",
        "after",
        "before",
    }
    assert "UserPatch" in described["components"]["schemas"]


def test_a_test_gives_the_application_another_database():
    app = service(AsyncDatabase("memory://", models=[User]))
    with Database("memory://", models=[User]) as other, TestClient(app) as client:
        one = other[User].create(email="eve@x.org")

        @app.get("/count")
        def count(users: Repo[User]) -> int:
            return users.count()

        app.dependency_overrides[database] = lambda: other
        assert client.get("/count").json() == 1
        other[User].remove(one)
        assert client.get("/count").json() == 0
        assert client.get("/health").json() == {"status": "ok"}


def test_a_synchronous_database_is_closed_with_its_application():
    db = Database("memory://", models=[User])
    app = FastAPI(lifespan=lifespan(db))

    @app.get("/threads")
    def threads(users: Repo[User]) -> bool:
        users.create(email="ada@x.org")
        return threading.current_thread() is threading.main_thread()

    with TestClient(app) as client:
        assert client.get("/threads").json() is False
    with pytest.raises(ClosedError):
        db[User].count()


def test_an_application_without_a_database_says_so():
    app = service(AsyncDatabase("memory://", models=[User]))
    with pytest.raises(ClosedError, match="no database"):
        TestClient(app).get("/users")


@pytest.mark.parametrize(
    "cls", [cls for cls in PROBLEM_STATUS if cls is not NoUsableIndexError], ids=lambda cls: cls.__name__
)
def test_an_error_is_a_problem_with_its_code_and_no_value(client: TestClient, cls: type[KvModelsError]):
    answer = client.get(f"/broken/{cls.__name__}")
    assert answer.status_code == PROBLEM_STATUS[cls]
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem == {
        "type": f"https://example.org/errors/{cls.code}",
        "title": "it happened",
        "status": PROBLEM_STATUS[cls],
        "code": cls.code,
    }
    assert ("Retry-After" in answer.headers) == (answer.status_code == 503)


def test_an_http_exception_is_a_problem_that_keeps_its_detail_and_headers():
    app = service(AsyncDatabase("memory://", models=[User]))

    @app.get("/refused", responses=problems(401, 409))
    async def refused(structured: bool = False) -> None:
        raise HTTPException(401, {"why": "no"} if structured else "no", headers={"WWW-Authenticate": "Basic"})

    with TestClient(app) as client:
        answer = client.get("/refused")
        assert answer.json() == {"type": "about:blank", "title": "Unauthorized", "status": 401, "detail": "no"}
        assert (answer.headers["content-type"], answer.headers["www-authenticate"]) == (
            "application/problem+json",
            "Basic",
        )
        assert client.get("/refused?structured=1").json() == {"detail": {"why": "no"}}
        responses = client.get("/openapi.json").json()["paths"]["/refused"]["get"]["responses"]
    assert list(responses["409"]["content"]) == ["application/problem+json"]
    assert list(responses["200"]["content"]) == ["application/json"]


def test_an_invalid_request_is_a_problem_that_names_its_fields_without_values(client: TestClient):
    at: list[str | int] = ["body", 1]
    for answer, loc, kind in (
        (client.post("/users", json={"color": ["secret"]}), ["body", "email"], "missing"),
        (client.get("/users?size=secret"), ["query", "size"], "int_parsing"),
        (client.get("/users/secret"), ["path", "key"], "ulid_parsing"),
        (client.post("/users", content="{secret", headers={"Content-Type": "application/json"}), at, "json_invalid"),
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
        problem = answer.json()
        errors = problem.pop("errors")
        assert problem == {"type": "about:blank", "title": HTTPStatus(422).phrase, "status": 422}
        assert (errors[0]["type"], set(errors[0])) == (kind, {"loc", "msg", "type"})
        assert errors[0]["loc"] == loc
        assert "secret" not in answer.text


def test_an_invalid_request_is_described_as_the_problem_that_it_is(client: TestClient):
    document = client.get("/openapi.json").json()
    described = document["paths"]["/users"]["get"]["responses"]["422"]["content"]
    assert described == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    schemas = document["components"]["schemas"]
    assert {"Problem", "FieldProblem"} < set(schemas)
    assert "ValidationError" not in json.dumps(document)
    assert schemas["FieldProblem"]["properties"]["loc"]["items"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}


def test_headers_are_described_where_the_dependency_is_and_not_where_a_description_equals_its_own(client: TestClient):
    app: Any = client.app
    document = client.get("/openapi.json").json()
    assert "x-kvmodels" not in json.dumps(document)
    pages, change = document["paths"]["/users"]["get"], document["paths"]["/users/{key}"]["patch"]
    assert "Link" in pages["responses"]["200"]["headers"]
    assert "ETag" in change["responses"]["200"]["headers"]
    texts = {one["name"]: one.get("description") for one in (*pages["parameters"], *change["parameters"])}

    @app.delete("/own")
    def own(
        after: str | None = Query(None, description=texts["after"]),
        if_match: str | None = Header(None, description=texts["if-match"]),
    ) -> None:
        del after, if_match

    app.openapi_schema = None
    response = client.get("/openapi.json").json()["paths"]["/own"]["delete"]["responses"]["200"]
    assert "headers" not in response


@pytest.mark.parametrize("is_early", [True, False])
def test_an_own_handler_of_invalid_requests_is_kept(is_early: bool):
    async def own(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"own": True}, 400)

    app = FastAPI(exception_handlers={RequestValidationError: own} if is_early else None)
    add_error_handlers(app)
    if not is_early:
        app.add_exception_handler(RequestValidationError, own)

    @app.get("/")
    async def number(number: int) -> int:
        return number

    client = TestClient(app)
    assert client.get("/?number=x").json() == {"own": True}
    content = client.get("/openapi.json").json()["paths"]["/"]["get"]["responses"]["422"]["content"]
    assert content == {"application/json": {"schema": {"$ref": "#/components/schemas/HTTPValidationError"}}}


def test_a_refused_removal_names_no_field_of_the_request_but_who_prevents_it():
    app = FastAPI(lifespan=lifespan(Database("memory://", models=[Team, Member])))
    add_error_handlers(app)

    @app.delete("/teams/{key}")
    def remove(teams: Repo[Team], members: Repo[Member], key: int) -> None:
        teams.create(id=1)
        members.create(id=7, team_id=1)
        teams.remove(key)

    @app.post("/teams/{team_id}/members")
    def join(members: Repo[Member], team_id: int) -> None:
        members.create(id=8, team_id=team_id)

    with TestClient(app) as client:
        problem = client.delete("/teams/1").json()
        assert (problem["code"], problem["status"], "errors" in problem) == (ProtectedError.code, 409, False)
        assert problem["detail"] == "Records of members refer to it by team_id."
        problem = client.post("/teams/2/members").json()
        assert (problem["status"], problem["errors"][0]["loc"]) == (409, ["path", "team_id"])


def test_an_error_of_the_server_is_no_problem_of_the_client(client: TestClient):
    with pytest.raises(DecodeError):
        client.get("/broken/DecodeError")


def test_a_taken_value_is_named_by_its_field_alone(client: TestClient):
    created(client, "ada@x.org")
    refused = created(client, "ada@x.org")
    assert (refused.status_code, refused.json()["code"]) == (409, UniqueViolationError.code)
    assert refused.json()["errors"] == [
        {"loc": ["body", "email"], "msg": refused.json()["title"], "type": UniqueViolationError.code}
    ]
    assert "ada" not in refused.text


def test_a_client_that_has_the_version_gets_no_body(client: TestClient):
    made = created(client, "ada@x.org")
    path, tag = f"/users/{made.json()['id']}", made.headers["ETag"]
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        answer = client.get(path, headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", tag)
    fresh = client.get(path, headers={"If-None-Match": '"x"'})
    assert (fresh.status_code, fresh.headers["ETag"]) == (200, tag)


def test_a_change_needs_the_version_that_it_changes(client: TestClient):
    made = created(client, "ada@x.org")
    path, tag = f"/users/{made.json()['id']}", made.headers["ETag"]
    assert client.patch(path, json={"color": "blue"}).status_code == 428
    assert client.patch(path, json={}, headers={"If-Match": tag, "If-None-Match": "*"}).status_code == 412
    changed = client.patch(path, json={"color": "blue"}, headers={"If-Match": tag})
    assert (changed.status_code, changed.json()["color"]) == (200, "blue")
    for stale in (tag, '"nonsense"', f"W/{changed.headers['ETag']}"):
        assert client.patch(path, json={"color": "red"}, headers={"If-Match": stale}).status_code == 412
    matching = f'W/"a,b", "{"0" * 20}" , {changed.headers["ETag"]}'
    changed = client.patch(path, json={"color": "green"}, headers={"If-Match": matching})
    assert (changed.status_code, changed.json()["color"]) == (200, "green")
    lines = [("If-Match", '"nonsense"'), ("If-Match", changed.headers["ETag"])]
    assert client.patch(path, json={"color": "blue"}, headers=lines).json()["color"] == "blue"
    assert client.patch(path, json={"color": "red"}, headers={"If-Match": "*"}).json()["color"] == "red"
    assert client.patch(f"/users/{ULID()}", json={}, headers={"If-Match": "*"}).status_code == 404


def test_pages_are_linked_in_both_directions(client: TestClient):
    for number in range(5):
        created(client, f"{number}@x.org")
    found: list[str] = []
    url: str | None = "/users?size=2&color=red"
    backwards = None
    while url is not None:
        answer = client.get(url)
        found += [user["email"][0] for user in answer.json()["items"]]
        links = {
            link.split('rel="')[1][:-1]: link[1 : link.index(">")]
            for link in answer.headers.get("Link", "").split(", ")
            if link
        }
        url, backwards = links.get("next"), links.get("prev")
    assert found == list("01234")
    assert backwards is not None
    assert [user["email"][0] for user in client.get(backwards).json()["items"]] == ["2", "3"]
    assert client.get("/users?size=0").status_code == 422
    assert client.get("/users?after=nonsense").status_code == 400


def test_a_store_that_is_not_as_the_models_declare_it_serves_nobody():
    with Database("memory://outdated", models=[User]) as db:
        db[User].create(email="ada@x.org")
        with TestClient(service(AsyncDatabase("memory://outdated", models=[LaterUser]))) as client:
            answer = client.get("/health")
            assert (answer.status_code, answer.json()) == (503, {"status": "outdated"})
            app: Any = client.app
            app.state.kvmodels_database = Database("memory://", models=[User])
            app.state.kvmodels_database.close()
            assert client.get("/health").json() == {"status": "unreachable"}


class Booking(KvModel, collection="bookings"):
    id: PrimaryKey[int]
    starts: int
    ends: int = Field(alias="until")
    price: int = Field(default=1, gt=0)

    @model_validator(mode="after")
    def require_order(self) -> Booking:
        if self.ends <= self.starts:
            raise ValueError("it ends before it starts")
        return self


class NewBooking(Creation[Booking], exclude=("price",)):
    pass


class BookingPatch(Partial[Booking], exclude=("id",)):
    pass


class AnyTimes(BaseModel):
    ends: Any


class LaxBooking(KvModel, collection="bookings"):
    id: PrimaryKey[int]
    starts: int
    ends: int
    price: int = 1


def booking_service(db: Database) -> FastAPI:
    app = FastAPI(lifespan=lifespan(db))

    @app.post("/bookings")
    def create(bookings: Repo[Booking], body: NewBooking, price: int = 1) -> None:
        bookings.create(body, price=price)

    @app.patch("/bookings/{key}")
    def change(bookings: Repo[Booking], key: int, body: BookingPatch, starts: int | None = None) -> None:
        own: dict[str, Any] = {} if starts is None else {"starts": starts}
        bookings.patch(key, body, **own)

    @app.post("/own")
    def own(bookings: Repo[Booking]) -> None:
        bookings.create(id=2, starts=2, until=1)

    @app.post("/mutate")
    def mutate(bookings: Repo[Booking]) -> None:
        def shorten(booking: Booking) -> None:
            booking.ends = 0

        bookings.mutate(1, shorten)

    return app


def test_a_body_that_a_validator_of_several_fields_refuses_is_an_invalid_request():
    app = booking_service(Database("memory://", models=[Booking]))
    add_error_handlers(app)
    with TestClient(app) as client:
        refused_first = client.post("/bookings", json={"id": 1, "starts": 7654, "until": 1})
        assert client.post("/bookings", json={"id": 1, "starts": 7654, "until": 9999}).status_code == 200
        refused_change = client.patch("/bookings/1", json={"until": 3})
        refused_mix = client.patch("/bookings/1?starts=7655", json={"until": 3})
    for answer in (refused_first, refused_change, refused_mix):
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
        assert answer.json()["errors"] == [
            {"loc": ["body"], "msg": "Value error, it ends before it starts", "type": "value_error"}
        ]
        assert "765" not in answer.text


def test_a_body_of_another_class_is_refused_by_its_field_under_its_alias():
    app = booking_service(Database("memory://", models=[Booking]))
    add_error_handlers(app)

    @app.patch("/any/{key}")
    def change(bookings: Repo[Booking], key: int, body: AnyTimes) -> None:
        bookings.patch(key, body)

    with TestClient(app) as client:
        assert client.post("/bookings", json={"id": 1, "starts": 1, "until": 2}).status_code == 200
        answer = client.patch("/any/1", json={"ends": "secret"})
    assert answer.status_code == 422
    assert [(one["loc"][0], one["type"]) for one in answer.json()["errors"]] == [("body", "int_parsing")]
    assert "secret" not in answer.text


def test_an_own_handler_of_invalid_requests_receives_a_refused_body():
    app = booking_service(Database("memory://", models=[Booking]))

    @app.exception_handler(RequestValidationError)
    def own(request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse([[*one["loc"]] for one in error.errors()], 418)

    add_error_handlers(app)
    with TestClient(app) as client:
        answer = client.post("/bookings", json={"id": 1, "starts": 2, "until": 1})
    assert (answer.status_code, answer.json()) == (418, [["body"]])


@pytest.mark.parametrize("path", ["/own", "/mutate", "/bookings?price=0"])
def test_an_invalid_value_of_the_service_itself_is_no_problem_of_the_client(path: str):
    app = booking_service(Database("memory://", models=[Booking]))
    add_error_handlers(app)
    with TestClient(app) as client:
        assert client.post("/bookings", json={"id": 1, "starts": 1, "until": 2}).status_code == 200
        with pytest.raises(ValidationError):
            client.post(path, json={"id": 2, "starts": 1, "until": 2})


def test_a_hook_that_makes_an_object_invalid_is_no_problem_of_the_client():
    db = Database("memory://", models=[Booking])
    app = booking_service(db)
    add_error_handlers(app)

    def spoil(booking: Booking, *_: Booking) -> None:
        booking.ends = 0

    with TestClient(app) as client:
        assert client.post("/bookings", json={"id": 1, "starts": 1, "until": 2}).status_code == 200
        db.signals.before_update(Booking)(spoil)
        with pytest.raises(ValidationError):
            client.patch("/bookings/1", json={"until": 3})


def test_a_stored_record_that_breaks_a_rule_is_no_problem_of_the_client(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Database(url, models=[LaxBooking]) as lax:
        lax[LaxBooking].create(id=1, starts=9, ends=1)
    app = booking_service(Database(url, models=[Booking]))
    add_error_handlers(app)
    with TestClient(app) as client, pytest.raises(DecodeError):
        client.patch("/bookings/1", json={"price": 3})
