"""Chromium plays a recording of 50 MB from ``BlobResponse``: it asks for ranges, and seeks to the end by one."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from playwright.sync_api import sync_playwright

from kvmodels import Blob, Database
from kvmodels.ext.fastapi import BlobResponse, Repo, lifespan
from tests.admin.test_browser import CHROMIUM, FLAGS, PATIENCE_MS
from tests.blobs.stores import MODELS, Paper
from tests.services.serving import ServedApplication

pytestmark = pytest.mark.servers

RATE, FRAME = 44_100, 4
SECONDS = 284
PIECES = 71
PLAY = """async () => {
    const sound = document.querySelector("audio");
    const event = name => new Promise((resolve, reject) => {
        sound.addEventListener(name, resolve, {once: true});
        sound.addEventListener("error", () => reject(sound.error.message), {once: true});
    });
    const known = event("loadedmetadata");
    sound.src = "/sound";
    await known;
    await sound.play();
    const found = event("seeked"), end = event("ended");
    sound.currentTime = sound.duration - 2;
    await found;
    await end;
    return [sound.duration, sound.currentTime];
}"""


def recording() -> io.BytesIO:
    """Return silence of 50 MB in a file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(2)
        sound.setsampwidth(2)
        sound.setframerate(RATE)
        for _ in range(PIECES):
            sound.writeframes(bytes(RATE * FRAME * SECONDS // PIECES))
    file.seek(0)
    return file


def application(db: Database, asked: list[str | None]) -> FastAPI:
    """Return a service with one page, which has a player, and the recording."""
    app = FastAPI(lifespan=lifespan(db))

    def page() -> HTMLResponse:
        return HTMLResponse("<!doctype html><link rel=icon href=data:,><title>Player</title><audio></audio>")

    def sound(request: Request, papers: Repo[Paper]) -> BlobResponse:
        asked.append(request.headers.get("range"))
        scan = papers.get(1).scan
        assert scan is not None
        return BlobResponse(scan, inline=True)

    app.get("/")(page)
    app.get("/sound", response_model=None)(sound)
    return app


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database(f"sqlite:///{tmp_path}/store", models=MODELS) as db:
        db[Paper].create(id=1, scan=Blob(recording(), content_type="audio/wav"))
        yield db


def test_a_browser_plays_a_recording_by_ranges(db: Database, tmp_path: Path) -> None:
    asked: list[str | None] = []
    answers: list[int] = []
    flags = [*FLAGS, "--autoplay-policy=no-user-gesture-required", "--mute-audio"]
    with ServedApplication(application(db, asked)) as served, sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tmp_path / "profile", executable_path=CHROMIUM, headless=True, args=flags
        )
        browser.set_default_timeout(PATIENCE_MS)
        page = browser.new_page()
        page.goto(served.url)
        page.on("response", lambda one: answers.append(one.status))
        duration, end = page.evaluate(PLAY)
        browser.close()
    assert (duration, end) == (SECONDS, SECONDS)
    assert set(answers) == {206}
    starts = [int((given or "").removeprefix("bytes=").partition("-")[0]) for given in asked]
    assert (starts[0], max(starts) > RATE * FRAME * SECONDS * 9 // 10) == (0, True), asked
