"""The tracker (``examples/tracker``) behind a real uvicorn, on the engine of ``--kv-engine``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from examples.tracker.app import DAY_S, create_app
from examples.tracker.models import MODELS, NewTicket, Project, Ticket, TicketPatch, User
from examples.tracker.services import ProjectClosed, change_ticket, close_project, create_ticket
from kvmodels import ULID
from kvmodels.testing import explore_races
from kvmodels.testing.factories import KvFactory
from tests.services.serving import ServedApplication, events

REQUESTS = 300
KEY = ULID("01J00000000000000000000000")  # not random, so that a seed repeats its history


@pytest.fixture
def kv_models():
    return MODELS


@pytest.fixture
def kv_options():
    return {"change_log": DAY_S}


class Tickets(KvFactory[Ticket]):
    status = "open"


class Projects(KvFactory[Project]):
    closed = False


@pytest.fixture
def served(kv_url, kv_db) -> Iterator[ServedApplication]:
    """The tracker over the store of ``kv_db``, which checks all indexes after the test."""
    with ServedApplication(create_app(kv_url)) as application:
        yield application


@pytest.fixture
def client(served) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=served.url, timeout=60) as opened:
        yield opened


@pytest.fixture
def web(client) -> dict[str, Any]:
    """A project, and the body of a ticket."""
    ada = client.post("/users", json={"email": "Ada@x.org", "name": "Ada"}).json()
    project = client.post("/projects", json={"slug": "web", "title": "Web"}).json()
    return {"project": project, "ticket": {"title": "It fails", "reporter_id": ada["id"], "tags": ["ui"]}}


def test_addresses_are_unique_in_either_case(client, web):
    assert client.get("/health").json() == {"status": "ok"}
    refused = client.post("/users", json={"email": "ada@X.ORG", "name": "Eve"})
    assert (refused.status_code, refused.headers["content-type"]) == (409, "application/problem+json")
    assert refused.json()["errors"][0]["loc"] == ["body", "email"]
    assert client.post("/projects", json={"slug": "web", "title": "Again"}).status_code == 409
    assert client.post("/projects", json={"slug": "Not a slug", "title": ""}).status_code == 422


def test_the_history_says_who_changed_a_ticket(client, web):
    made = client.post("/projects/web/tickets", json=web["ticket"], headers={"X-User": "ada"})
    path, tag = f"/tickets/{made.json()['id']}", made.headers["ETag"]
    client.patch(path, json={"status": "active"}, headers={"If-Match": tag, "X-User": "grace"})
    changed, created = client.get(f"{path}/history").json()
    assert (changed["actor"], changed["changes"]) == ("grace", {"status": ["open", "active"]})
    assert (created["actor"], created["changes"]["title"]) == ("ada", [None, "It fails"])


def test_a_removed_project_is_restored_with_its_tickets(client, web, kv_db):
    for _ in range(3):
        client.post("/projects/web/tickets", json=web["ticket"])
    assert client.delete("/projects/web", headers={"X-User": "eve"}).status_code == 204
    assert (client.get("/projects/web").status_code, client.get("/tickets").json()["items"]) == (404, [])
    assert [one.ended.actor for one in kv_db[Ticket].trash()] == ["eve"] * 3
    [removed] = client.get("/trash/projects").json()
    assert removed == web["project"]
    assert client.post(f"/trash/projects/{removed['id']}/restore").json() == 3
    assert client.get("/projects/web/counts").json() == {"open": 3}
    for key in (removed["id"], ULID()):  # it is no longer in the trash, and another one never was
        assert client.post(f"/trash/projects/{key}/restore").status_code == 404


def test_a_ticket_is_changed_only_in_the_version_that_was_seen(client, web):
    made = client.post("/projects/web/tickets", json=web["ticket"])
    path, tag = f"/tickets/{made.json()['id']}", made.headers["ETag"]
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 304
    assert client.patch(path, json={"status": "active"}).status_code == 428
    changed = client.patch(path, json={"status": "active"}, headers={"If-Match": tag})
    assert (changed.status_code, changed.json()["status"]) == (200, "active")
    for stale in (
        client.patch(path, json={"title": "x"}, headers={"If-Match": tag}),
        client.delete(path, headers={"If-Match": tag}),
    ):
        assert (stale.status_code, stale.json()["code"]) == (412, "KV401")
    assert client.delete(path, headers={"If-Match": f"{tag}, {changed.headers['ETag']}"}).status_code == 204
    assert client.get(path).status_code == client.delete(path).status_code == 404


def test_a_ticket_refers_to_records_that_exist(client, web):
    nobody = web["ticket"] | {"reporter_id": web["project"]["id"]}
    assert client.post("/projects/web/tickets", json=nobody).status_code == 409
    assert client.post("/projects/none/tickets", json=web["ticket"]).status_code == 404


def test_tickets_are_listed_by_any_of_their_parameters_in_pages(client, web, kv_db):
    project = kv_db[Project].get(slug="web")
    Tickets.create_batch(kv_db, 5, project_id=project.id, tags=["ui"])
    Tickets.create_batch(kv_db, 3, project_id=project.id, tags=["api", "ui"], status="active")

    def found(**parameters: str) -> list[int]:
        ids: list[int] = []
        url: str | None = str(httpx2.URL("/tickets", params={"size": "2", **parameters}))
        while url is not None:
            answer = client.get(url)
            ids += [ticket["id"] for ticket in answer.json()["items"]]
            url = answer.links.get("next", {}).get("url")
        return ids

    everything = [ticket.id for ticket in kv_db[Ticket]]
    assert found() == everything
    assert found(order_by="-id") == everything[::-1]
    assert found(tags__contains="api") == found(status="active") == everything[5:]
    assert found(project_id=str(project.id), status="open", tags__contains="ui") == everything[:5]
    assert client.get("/tickets?status=open&order_by=title").status_code == 422
    assert client.get("/tickets?after=nonsense").status_code == 400
    assert client.get("/projects/web/counts").json() == {"open": 5, "active": 3}


def test_a_project_is_closed_with_all_its_tickets(client, web, kv_db):
    Tickets.create_batch(kv_db, 3, project_id=kv_db[Project].get(slug="web").id)
    other = Tickets.create(kv_db, project_id=Projects.create(kv_db).id)
    assert client.post("/projects/web/close").json() == 3
    assert client.get("/projects/web").json()["closed"] is True
    assert client.get("/projects/web/counts").json() == {"done": 3}
    refused = client.post("/projects/web/tickets", json=web["ticket"])
    assert (refused.status_code, refused.json()["detail"]) == (409, "the project is closed")
    assert kv_db[Ticket].get(other.id).status == "open"


def test_events_show_each_change_also_after_a_lost_connection(client, web, kv_db):
    with events(client, "/tickets/events") as stream:
        assert stream.records(1) == [("reset", None, None)]
        made = client.post("/projects/web/tickets", json=web["ticket"]).json()
        assert stream.records(1) == [("changed", made["id"], made)]
        position = stream.position
    second = client.post("/projects/web/tickets", json=web["ticket"]).json()
    client.delete(f"/tickets/{made['id']}")
    with events(client, "/tickets/events", position) as stream:
        assert stream.records(2) == [("changed", second["id"], second), ("removed", made["id"], None)]


@pytest.mark.servers
async def test_300_requests_at_a_time_all_succeed(served, kv_db):
    reporter = kv_db[User].create(email="ada@x.org", name="Ada")
    projects = Projects.create_batch(kv_db, 3)
    slugs = [project.slug for project in projects]
    async with httpx2.AsyncClient(base_url=served.url, timeout=60) as client:

        async def work(number: int) -> int:
            body = {"title": f"{number}", "reporter_id": str(reporter.id)}
            if number % 3:
                return (await client.post(f"/projects/{slugs[number % 5 % 3]}/tickets", json=body)).status_code
            made = await client.post("/users", json={"email": f"{number}@x.org", "name": "x"})
            return made.status_code

        statuses = await asyncio.gather(*(work(number) for number in range(REQUESTS)))
        assert statuses == [201] * REQUESTS
        counts = [(await client.get(f"/projects/{slug}/counts")).json()["open"] for slug in slugs]
    wanted = [sum(1 for number in range(REQUESTS) if number % 3 and number % 5 % 3 == place) for place in range(3)]
    assert counts == wanted
    assert sorted(int(ticket.title) for ticket in kv_db[Ticket]) == [n for n in range(REQUESTS) if n % 3]
    assert kv_db[User].count() == 1 + REQUESTS / 3


# --- races ------------------------------------------------------------------------------------------------------------


async def create_ticket_without_a_guard(db, slug, body):
    """The planted bug: a check of the project in a read before the write."""
    project = await db[Project].get(slug=slug)
    if project.closed:
        raise ProjectClosed
    return await db[Ticket].create(body, project_id=project.id)


def closing(create, race):
    """Tickets are created and changed while their project is closed: in the end, all are done."""
    tracker: Any = race.process(*MODELS)
    ada = race.at_once(tracker[User].create(id=KEY, email="ada@x.org", name="Ada"))
    race.at_once(tracker[Project].create(id=KEY, slug="web", title="Web"))
    body = NewTicket(title="It fails", reporter_id=ada.id)
    first = race.at_once(create_ticket(tracker, "web", body))
    race.add("creates", create(tracker, "web", body))
    race.add("changes", change_ticket(tracker, first.id, TicketPatch(status="active")))
    race.add("closes", close_project(tracker, "web"))
    race.run()

    async def statuses() -> list[str]:
        return [ticket.status async for ticket in tracker[Ticket]]

    assert set(race.at_once(statuses())) == {"done"}
    assert race.at_once(tracker.check()).ok


def test_no_ticket_of_a_closed_project_is_left_open():
    explore_races(lambda race: closing(create_ticket, race), seeds=30, errors=[ProjectClosed])


def test_a_planted_bug_is_found_at_a_seed_that_repeats_it():
    with pytest.raises(AssertionError) as caught:
        explore_races(lambda race: closing(create_ticket_without_a_guard, race), errors=[ProjectClosed])
    history = caught.value.__notes__[0]
    seed = int(history.splitlines()[0].removeprefix("seed "))
    print(f"the planted bug is found at seed {seed}")
    with pytest.raises(AssertionError) as again:
        explore_races(lambda race: closing(create_ticket_without_a_guard, race), seeds=[seed], errors=[ProjectClosed])
    assert again.value.__notes__[0] == history
