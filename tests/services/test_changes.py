"""``Changes``: server-sent events of changed records, from a real uvicorn to a real HTTP client."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import fastapi.routing
import httpx2
import pytest
from fastapi import Depends, FastAPI
from fastapi.sse import EventSourceResponse
from pydantic import BaseModel, ConfigDict

from kvmodels import ULID, AsyncDatabase, Database, Field, KvModel, PrimaryKey
from kvmodels.ext.fastapi import AsyncRepo, Changes, RecordEvent, Repo, lifespan, shutdown
from tests.services.serving import LONGEST_S, ServedApplication, events
from tests.worlds import in_the_soak


class Lamp(KvModel, collection="lamps"):
    id: PrimaryKey[int]
    on: bool = False
    secret: str = Field(default="x", alias="Secret")


class Badge(KvModel, collection="badges"):
    model_config = ConfigDict(ser_json_bytes="hex")

    id: PrimaryKey[ULID]
    code: PrimaryKey[bytes]


class ShownLamp(BaseModel):
    on: bool


def shown(lamp: Lamp) -> ShownLamp | None:
    return None if lamp.id == 13 or lamp.secret == "hidden" else ShownLamp(on=lamp.on)


def service(db: AsyncDatabase | Database) -> FastAPI:
    app = FastAPI(lifespan=lifespan(db))

    @app.get("/async", response_class=EventSourceResponse)
    async def of_tasks(
        lamps: AsyncRepo[Lamp], changes: Annotated[Changes, Depends()]
    ) -> AsyncIterator[RecordEvent[Lamp]]:
        async for event in changes.of(lamps):
            yield event

    @app.get("/sync", response_class=EventSourceResponse)
    async def of_threads(lamps: Repo[Lamp], changes: Annotated[Changes, Depends()]) -> AsyncIterator[RecordEvent[Lamp]]:
        async for event in changes.of(lamps):
            yield event

    @app.get("/shown", response_class=EventSourceResponse)
    async def of_shown(
        lamps: AsyncRepo[Lamp], changes: Annotated[Changes, Depends()]
    ) -> AsyncIterator[RecordEvent[ShownLamp]]:
        async for event in changes.of(lamps, shown):
            yield event

    return app


@pytest.fixture(params=["memory", *in_the_soak("sqlite", "lmdb")])
def url(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> str:
    return url_of(request.param)


@pytest.fixture
def lamps(url: str) -> Iterator[Database]:
    with Database(url, models=[Lamp], change_log=3600) as db:
        yield db


def record(on: bool = False) -> dict[str, object]:
    return {"id": 1, "on": on, "Secret": "x"}


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("world", ["async", "sync"])
def test_a_client_resumes_without_a_gap_after_changes_that_it_missed(lamps: Database, url: str, world: str):
    db = (AsyncDatabase if world == "async" else Database)(url, models=[Lamp], change_log=3600)
    with ServedApplication(service(db)) as served, httpx2.Client(base_url=served.url, timeout=LONGEST_S) as client:
        lamps[Lamp].create(id=1)
        with events(client, f"/{world}") as stream:
            assert stream.records(2) == [("reset", None, None), ("changed", 1, record())]
            lamps[Lamp].patch(1, on=True)
            assert stream.records(1) == [("changed", 1, record(on=True))]
            position = stream.position
        lamps[Lamp].create(id=2)
        lamps[Lamp].remove(1)
        with events(client, f"/{world}", position) as stream:
            assert [(event, key) for event, key, _ in stream.records(2)] == [("changed", 2), ("removed", 1)]
            lamps[Lamp].create(id=3)
            assert [(event, key) for event, key, _ in stream.records(1)] == [("changed", 3)]
        until(lambda: not shutdown._open)


def test_a_position_counts_once_everything_before_it_was_sent(lamps: Database, url: str):
    lamps[Lamp].bulk_create([Lamp(id=number) for number in range(3)])
    db = AsyncDatabase(url, models=[Lamp], change_log=3600)
    with ServedApplication(service(db)) as served, httpx2.Client(base_url=served.url, timeout=LONGEST_S) as client:
        with events(client, "/async") as stream:
            stream.records(3)
            assert stream.position is None
            stream.records(1)
            assert stream.position is not None
        since = lamps[Lamp].patch(0, on=True).versionstamp
        lamps[Lamp].patch(1, on=True)
        assert since is not None
        with events(client, "/async", since=since) as stream:
            assert [key for _, key, _ in stream.records(1)] == [1]
        with events(client, "/async", "0" * 20) as stream:
            assert [event for event, _, _ in stream.records(4)] == ["reset", *["changed"] * 3]
        assert client.get("/async", headers={"Last-Event-ID": "x"}).status_code == 422


def test_what_a_client_may_see_is_shown_to_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fastapi.routing, "_PING_INTERVAL", 0.01)
    db = Database("memory://shown", models=[Lamp], change_log=60)
    app = service(AsyncDatabase("memory://shown", models=[Lamp], change_log=60))
    with db, ServedApplication(app) as served, httpx2.Client(base_url=served.url, timeout=LONGEST_S) as client:
        with events(client, "/shown") as stream:
            stream.records(1)
            until(lambda: next(stream).id is not None)
            db[Lamp].bulk_create([Lamp(id=13), Lamp(id=14)])
            assert stream.records(1) == [("changed", 14, {"on": False})]
            until(lambda: next(stream).comment == "ping")
        described = client.get("/openapi.json").json()
    content = described["paths"]["/shown"]["get"]["responses"]["200"]["content"]["text/event-stream"]
    data = content["itemSchema"]["properties"]["data"]["contentSchema"]["$ref"].rpartition("/")[2]
    assert set(described["components"]["schemas"][data]["properties"]) == {"event", "key", "record", "version"}
    assert {"$ref": "#/components/schemas/ShownLamp"} in described["components"]["schemas"][data]["properties"][
        "record"
    ]["anyOf"]


def test_a_hidden_record_causes_no_event_unless_the_stream_has_sent_it(lamps: Database, url: str):
    lamps[Lamp].bulk_create([Lamp(id=13), Lamp(id=14)])
    app = service(AsyncDatabase(url, models=[Lamp], change_log=3600))
    with ServedApplication(app) as served, httpx2.Client(base_url=served.url, timeout=LONGEST_S) as client:
        with events(client, "/shown") as stream:
            assert [(event, key) for event, key, _ in stream.records(2)] == [("reset", None), ("changed", 14)]
            lamps[Lamp].patch(13, on=True)
            lamps[Lamp].remove(13)
            lamps[Lamp].patch(14, secret="hidden")
            lamps[Lamp].patch(14, on=True)
            lamps[Lamp].create(id=15)
            assert [(event, key) for event, key, _ in stream.records(2)] == [("removed", 14), ("changed", 15)]


def test_a_stream_that_resumes_tells_no_key_of_a_hidden_record(lamps: Database, url: str):
    lamps[Lamp].bulk_create([Lamp(id=number) for number in (1, 2, 3)])
    app = service(AsyncDatabase(url, models=[Lamp], change_log=3600))
    with ServedApplication(app) as served, httpx2.Client(base_url=served.url, timeout=LONGEST_S) as client:
        with events(client, "/shown") as stream:
            stream.records(4)
            until(lambda: stream.position or next(stream))
            position = stream.position
        lamps[Lamp].patch(1, on=True)
        with events(client, "/shown", position) as stream:
            assert stream.records(1) == [("changed", 1, {"on": True})]
            lamps[Lamp].remove(1)
            assert stream.records(1) == [("removed", 1, None)], "this stream has sent it"
        lamps[Lamp].create(id=13)
        lamps[Lamp].patch(2, secret="hidden")
        with events(client, "/shown", position) as stream:
            assert [(event, key) for event, key, _ in stream.records(2)] == [("reset", None), ("changed", 3)]
            lamps[Lamp].remove(13)
            lamps[Lamp].remove(3)
            assert stream.records(1) == [("removed", 3, None)]


@pytest.mark.parametrize("world", ["async", "sync"])
def test_a_position_that_the_store_has_not_reached_begins_again(lamps: Database, url: str, world: str):
    lamps[Lamp].create(id=1)
    db = (AsyncDatabase if world == "async" else Database)(url, models=[Lamp], change_log=3600)
    with ServedApplication(service(db)) as served, httpx2.Client(base_url=served.url, timeout=LONGEST_S) as client:
        for options in ({"position": "f" * 20}, {"since": "f" * 20}):
            with events(client, f"/{world}", **options) as stream:
                assert [event for event, _, _ in stream.records(2)] == ["reset", "changed"]
                lamps[Lamp].patch(1, on=True)
                assert stream.records(1) == [("changed", 1, record(on=True))]
                lamps[Lamp].patch(1, on=False)


def test_a_client_of_a_restored_store_gets_the_present_records(tmp_path: Path):
    with Database(f"sqlite:///{tmp_path}/store.db", models=[Lamp], change_log=3600) as db:
        db[Lamp].create(id=1)
        db.kv.backup(tmp_path / "backup.db")
        position = db[Lamp].create(id=2).versionstamp  # the restore undoes it
    restored = AsyncDatabase(f"sqlite:///{tmp_path}/backup.db", models=[Lamp], change_log=3600)
    with (
        ServedApplication(service(restored)) as served,
        httpx2.Client(base_url=served.url, timeout=LONGEST_S) as client,
        Database(f"sqlite:///{tmp_path}/backup.db", models=[Lamp], change_log=3600) as db,
    ):
        db[Lamp].create(id=3)
        with events(client, "/async", position) as stream:
            found = [(event, key) for event, key, _ in stream.records(3)]
            assert found == [("reset", None), ("changed", 1), ("changed", 3)]


def test_each_event_has_the_version_of_its_record(lamps: Database, url: str):
    first = lamps[Lamp].create(id=1)
    app = service(AsyncDatabase(url, models=[Lamp], change_log=3600))
    with ServedApplication(app) as served, httpx2.Client(base_url=served.url, timeout=LONGEST_S) as client:
        with events(client, "/async") as stream:
            found = [event.data for event in (next(stream), next(stream)) if event.data]
            assert [data["version"] for data in found] == [None, first.versionstamp]
            changed = lamps[Lamp].patch(1, if_version=found[1]["version"], on=True)
            until(lambda: (event := next(stream)).data and event.data["version"] == changed.versionstamp)


def test_keys_of_any_type_are_sent():
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://badges", models=[Badge], change_log=60)))

    @app.get("/badges", response_class=EventSourceResponse)
    async def of_badges(
        badges: AsyncRepo[Badge], changes: Annotated[Changes, Depends()]
    ) -> AsyncIterator[RecordEvent[Badge]]:
        async for event in changes.of(badges):
            yield event

    db = Database("memory://badges", models=[Badge], change_log=60)
    with db, ServedApplication(app) as served, httpx2.Client(base_url=served.url, timeout=LONGEST_S) as client:
        made = db[Badge].create(id=ULID(), code=b"\xff\x00")
        with events(client, "/badges") as stream:
            key = [str(made.id), "ff00"]
            assert [(event, found) for event, found, _ in stream.records(2)] == [("reset", None), ("changed", key)]


@pytest.mark.parametrize("world", ["async", "sync"])
def test_a_client_that_is_gone_leaves_nothing_that_waits(world: str):
    db = (AsyncDatabase if world == "async" else Database)("memory://gone", models=[Lamp], change_log=60)
    with ServedApplication(service(db)) as served:
        before = served.tasks()
        threads = threading.active_count()
        with httpx2.Client(base_url=served.url, timeout=LONGEST_S) as client, events(client, f"/{world}") as stream:
            stream.records(1)
            until(lambda: shutdown._open)
            assert served.tasks() > before
        until(lambda: not shutdown._open)
        until(lambda: served.tasks() == before)
        until(lambda: world == "async" or threading.active_count() <= threads + 1)


@pytest.mark.parametrize("world", ["async", "sync"])
def test_a_client_that_goes_without_reading_leaves_no_traceback(capsys: pytest.CaptureFixture[str], world: str):
    db = (AsyncDatabase if world == "async" else Database)("memory://unread", models=[Lamp], change_log=60)
    with Database("memory://unread", models=[Lamp], change_log=60) as lamps, ServedApplication(service(db)) as served:
        records = [Lamp(id=number, Secret="x" * 1_000) for number in range(5_000)]
        lamps[Lamp].bulk_create(records, batch_size=50)  # etcd takes no more in one commit
        address = urlsplit(served.url)
        before = served.tasks()
        with socket.create_connection((address.hostname, address.port)) as client:
            client.sendall(f"GET /{world} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert client.recv(100)
            until(lambda: shutdown._open)
            client.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # a reset, as of a lost host
        until(lambda: not shutdown._open)
        until(lambda: served.tasks() == before)
    assert capsys.readouterr().err == ""


PROGRAM = """
from tests.services.test_changes import AsyncDatabase, Database, Lamp, service
app = service({cls}("memory://", models=[Lamp], change_log=60))
"""


@pytest.mark.servers
@pytest.mark.parametrize(("world", "cls"), [("async", "AsyncDatabase"), ("sync", "Database")])
def test_a_stream_ends_when_the_server_is_told_to_stop(tmp_path: Path, world: str, cls: str):
    (tmp_path / "program.py").write_text(PROGRAM.format(cls=cls), "utf-8")
    command = [sys.executable, "-m", "uvicorn", "program:app", "--port", "0", "--app-dir", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "running on" in line)
            address = next(word for word in line.split() if word.startswith("http:"))
            with httpx2.Client(base_url=address, timeout=LONGEST_S) as client, events(client, f"/{world}") as stream:
                stream.records(1)
                process.send_signal(signal.SIGTERM)
                assert [event.event for event in stream if event.data] == []
            log = process.stderr.read()
            assert process.wait(LONGEST_S) == -signal.SIGTERM
        finally:
            process.kill()
    assert "Application shutdown complete" in log
    assert "Traceback" not in log


async def test_a_handler_of_signals_is_called_and_restored():
    calls: list[str] = []

    class Stream:
        def close(self) -> None:
            calls.append("closed")

    previous = signal.signal(signal.SIGTERM, lambda *_: calls.append("handled"))
    try:
        ours = signal.getsignal(signal.SIGTERM)
        with shutdown.closed_at_shutdown(Stream()), shutdown.closed_at_shutdown(Stream()):
            signal.raise_signal(signal.SIGTERM)
            assert calls == ["closed", "closed", "handled"]
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, previous)
