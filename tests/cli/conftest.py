"""Run commands in this process, in a folder with an application of one model."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from kvmodels import open_kv
from kvmodels.cli.application import application
from kvmodels.keys import Key

PROGRAM = """
import os
from kvmodels import AsyncDatabase, Database, Indexed, KvModel, PrimaryKey, Unique

class Book(KvModel, collection="books"):
    isbn: PrimaryKey[str]
    title: Unique[str]
    genre: Indexed[str]
    price: float = 0.0

url = os.environ.get("SHOP", "shop.db")
shop = AsyncDatabase(url, models=[Book])

def make():
    return Database(url, models=[Book])
"""

Run = Callable[..., Result]
COMMAND = get_command(application)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with the module ``shop_app``."""
    (tmp_path / "shop_app.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "shop_app", raising=False)
    monkeypatch.delenv("KVMODELS_DATABASE", raising=False)
    return tmp_path


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line given as words; returns the result with ``exit_code``, ``stdout`` and ``stderr``."""

    # To build the command from its functions takes longer than most of its runs.
    monkeypatch.setattr("typer.testing._get_command", lambda _application: COMMAND)

    def invoke(*words: str, stdin: str | None = None) -> Result:
        for name in [name for name in sys.modules if name.endswith("_app")]:
            del sys.modules[name]
        result = CliRunner().invoke(application, words, input=stdin, prog_name="kvmodels")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def entries_in(url: str) -> list[tuple[Key, object]]:
    """Every key of a store with its value, those of the library included."""
    with open_kv(url, readonly=True) as kv:
        return [(entry.key, entry.value) for entry in kv.list(())]


def files_in(folder: Path) -> dict[str, bytes]:
    """The content of every file that is not empty, without the shared memory of SQLite and the locks of LMDB."""
    contents = {
        name: Path(root, name).read_bytes()
        for root, _, names in os.walk(folder)
        for name in names
        if not name.endswith((".pyc", "-shm", "lock.mdb"))
    }
    return {name: content for name, content in contents.items() if content}
