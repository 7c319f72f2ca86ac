"""The OpenAPI document of the tracker gives a typed client: openapi-typescript compiles it, and its types are exact."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from deno import find_deno_bin

from examples.tracker.app import create_app

CLIENT = Path(__file__).with_name("client.ts")
GENERATOR = "npm:openapi-typescript@7.13.0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the generated ``api.ts``."""
    (tmp_path / "openapi.json").write_text(json.dumps(create_app("memory://").openapi()), "utf-8")
    # Responses always have fields with a default, and bodies may leave them out: the document says which is required.
    deno(tmp_path, "run", "--quiet", "-A", GENERATOR, "openapi.json", "--default-non-nullable=false", "-o", "api.ts")
    return tmp_path


def deno(folder: Path, *arguments: str, succeeds: bool = True) -> str:
    """Run Deno in a folder, with its packages from npm there, and return what it prints."""
    environment = {
        **os.environ,
        "DENO_DIR": str(folder / "deno"),
        "DENO_NO_UPDATE_CHECK": "1",
        "DENO_TLS_CA_STORE": "system,mozilla",  # also behind a proxy with a certificate of its own
        "NO_COLOR": "1",
    }
    command = [find_deno_bin(), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode == 0) == succeeds, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.servers
def test_a_generated_client_knows_pages_bodies_and_problems(folder: Path):
    source = CLIENT.read_text("utf-8")
    (folder / "client.ts").write_text(source, "utf-8")
    deno(folder, "check", "client.ts")
    (folder / "wrong.ts").write_text(source.replace('["items"], Ticket[]>', '["items"], string[]>'), "utf-8")
    assert "is not assignable" in deno(folder, "check", "wrong.ts", succeeds=False)
    assert "HTTPValidationError" not in (folder / "api.ts").read_text("utf-8")
