"""One SQLite file, with Python programs on the file and programs of the real Deno behind ``kvmodels serve``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deno import find_deno_bin

from kvmodels import Database, KvModel
from tests.deno.accounts import Account, AccountWithLetter, AccountWithOwner, User
from tests.source_tree import REPOSITORY

HERE = Path(__file__).parent
TOKEN = "a-token-of-some-letters"
PROGRAMS, ROUNDS = 4, 15


def started(command: list[str], folder: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "DENO_KV_ACCESS_TOKEN": TOKEN,
        "DENO_DIR": str(folder / "cache"),
        "DENO_NO_UPDATE_CHECK": "1",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
    }
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def deno(script: str, *arguments: str) -> list[str]:
    options = ["-A", "--unstable-kv", "--no-lock", "--no-config", "--no-check", "--quiet"]
    return [find_deno_bin(), "run", *options, str(HERE / script), *arguments]


@contextlib.contextmanager
def served(file: Path, folder: Path, *options: str) -> Iterator[str]:
    """The URL at which a file is served to Deno."""
    command = [sys.executable, "-m", "kvmodels", "serve", str(file), "--addr", "127.0.0.1:0", *options]
    with started(command, folder) as server:
        assert server.stderr is not None
        try:
            line = server.stderr.readline()
            found = re.search(r'"(http://\S+)"', line)
            assert found is not None, line + server.stderr.read()
            yield found[1]
        finally:
            server.terminate()


def result_of(program: subprocess.Popen[str]) -> str:
    output, errors = program.communicate()
    assert program.returncode == 0, errors
    return output


def migrate(file: Path, model: type[KvModel]) -> None:
    with Database(file, models=[model], codec="v8") as db:
        db.apply()


@pytest.mark.servers
def test_four_programs_of_each_language_share_unique_values_and_a_counter(tmp_path):
    file = tmp_path / "shared.db"
    with Database(file, models=[Account], codec="v8") as db:
        # Deno sees no deadlines, so it takes this one off the record and off all its entries.
        db[Account].create(id=0, email="counter@example.org", hits=0, owner="nobody", expire_in=86_400)
        with served(file, tmp_path, "--allow-model-writes") as url:
            programs = [
                started([sys.executable, "-m", "tests.deno.accounts", str(file), str(number), str(ROUNDS)], tmp_path)
                for number in range(1, PROGRAMS + 1)
            ]
            programs += [
                started(deno("fight.ts", url, str(number), str(ROUNDS)), tmp_path)
                for number in range(PROGRAMS + 1, 2 * PROGRAMS + 1)
            ]
            won = [email for program in programs for email in json.loads(result_of(program))]
        assert sorted(email.lower() for email in won) == sorted(f"address{turn}@example.org" for turn in range(ROUNDS))
        assert db[Account].get(0).hits == 2 * PROGRAMS * ROUNDS
        assert db[Account].expires_at(0) is None
        assert db[Account].count() == 1 + ROUNDS
        assert sorted(account.email for account in db[Account].filter(hits=-1)) == sorted(won)
        assert db.check().ok


@pytest.mark.servers
def test_deno_follows_or_refuses_a_schema_that_changes_while_it_runs(tmp_path):
    file = tmp_path / "shared.db"
    migrate(file, Account)
    with served(file, tmp_path, "--allow-model-writes") as url, started(deno("follow.ts", url), tmp_path) as program:
        assert program.stdin is not None
        assert program.stdout is not None

        def next_line() -> str:
            assert program.stdout is not None
            return program.stdout.readline().strip()

        def insert() -> str:
            assert program.stdin is not None
            program.stdin.write("insert\n")
            program.stdin.flush()
            return next_line()

        assert next_line() == "open"
        assert insert() == "unknown_index"  # but the record is there
        migrate(file, AccountWithOwner)
        assert insert() == "2"
        migrate(file, AccountWithLetter)
        assert insert() == "unsupported_index"
        program.stdin.close()
        assert program.wait() == 0
    with Database(file, models=[AccountWithLetter], codec="v8") as db:
        assert [account.id for account in db[AccountWithLetter].filter(owner="deno").order_by("id")] == [1, 2]
        assert db.check().ok


def program_of(page: str) -> str:
    """The program of a page that imports the module."""
    blocks = re.findall(r"^```ts\n(.*?)^```$", (REPOSITORY / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    [program] = [block for block in blocks if "@kvmodels/kvmodels" in block]
    return program.replace('openKv("http://localhost:4512")', "openKv(Deno.args[0])")


PAGES: dict[str, tuple[list[User], str]] = {
    "deno/README.md": ([], "pro\nada@example.org\n[ 1 ] Choose another value, or change that record.\n"),
    "docs/guides/share-with-deno.md": (
        [User(id=1, email="ada@example.org", plan="pro")],
        "ada@example.org 1\nbob@example.org 0\n",
    ),
}
"""The records before the program of each page runs, and what it prints."""


@pytest.mark.servers
@pytest.mark.parametrize("page", PAGES)
def test_the_program_of_a_page_prints_what_it_should(page, tmp_path):
    file, (records, output) = tmp_path / "shared.db", PAGES[page]
    (tmp_path / "program.ts").write_text(program_of(page))
    module = (REPOSITORY / "deno/kvmodels.ts").as_uri()
    (tmp_path / "imports.json").write_text(json.dumps({"imports": {"@kvmodels/kvmodels": module}}))
    with Database(file, models=[User], codec="v8") as db:
        for record in records:
            db[User].insert(record.model_copy())
        with served(file, tmp_path, "--allow-model-writes") as url:
            command = deno(str(tmp_path / "program.ts"), url)
            command.insert(2, f"--import-map={tmp_path / 'imports.json'}")
            assert result_of(started(command, tmp_path)) == output
        assert db[User].count() == 2 * len(records)
        assert db.check().ok


@pytest.mark.servers
def test_a_server_that_protects_models_lets_deno_only_read_them(tmp_path):
    file = tmp_path / "shared.db"
    with Database(file, models=[Account], codec="v8") as db:
        db[Account].create(id=1000, email="Address0@example.org", hits=0, owner="nobody")
    with served(file, tmp_path) as url, started(deno("fight.ts", url, "5", "1"), tmp_path) as program:
        output, errors = program.communicate()
    assert (program.returncode, output) == (1, "")
    assert "--allow-model-writes" in errors
