"""The file of a program of the real Deno is loaded with all values, their order, deadlines and messages."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvmodels import Database, Indexed, KvModel, KvU64, PrimaryKey, Unique, open_async_kv, open_kv
from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.keys import encode_key
from kvmodels.core.values import UNDEFINED
from kvmodels.errors import (
    DecodeError,
    EngineError,
    ForeignFileError,
    InvalidArgumentError,
    InvalidValueError,
    UnsupportedError,
)
from tests.deno.runtime import run_script

SCRIPT = Path(__file__).with_name("fill.ts")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a Deno program that has ended."""
    path = tmp_path_factory.mktemp("deno") / "deno.sqlite3"
    run_script(SCRIPT, path)
    return path


@pytest.fixture
def file(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(filled, tmp_path))


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]
    email: Unique[str]
    books: Indexed[int]


def test_a_model_over_loaded_records_reads_their_numbers_with_the_codec_v8(file: Path, tmp_path: Path):
    with open_kv(tmp_path / "store.db", codec="v8") as kv:
        kv.load_deno(file)
    with Database(tmp_path / "store.db", models=[Author], codec="v8") as db:
        assert db.apply().complete
        assert db.check().ok
        (found,) = db[Author].filter(books__gte=3)
        assert (found.id, found.email, found.books) == (1, "ada@example.com", 3)


def test_records_with_numbers_of_javascript_are_not_called_worthless(file: Path, tmp_path: Path):
    with open_kv(tmp_path / "store.db") as kv:
        kv.load_deno(file)
    with Database(tmp_path / "store.db", models=[Author]) as db:
        (suspect,) = db.check(Author).undecodable
        assert "codec='v8'" in str(suspect.hint)


@pytest.mark.parametrize("codec", ["msgpack", "v8"])
def test_a_value_that_contains_itself_is_named_with_what_can_be_done(file: Path, codec: str):
    value: dict[str, object] = {"name": "Ada"}
    value["self"] = value
    with closing(sqlite3.connect(file)) as program, program:
        data = V8Codec().encode(value)[0]
        row = (encode_key(("users", "ada")), data)
        program.execute("INSERT INTO kv (k, v, v_encoding, version) VALUES (?, ?, 1, 1)", row)
    with open_kv(codec=codec) as kv:
        with pytest.raises(InvalidValueError) as caught:
            kv.load_deno(file)
        assert caught.value.key == ("users", "ada")
        assert "in the Deno program" in str(caught.value.hint)
        assert kv.count(()) == 0


@pytest.mark.parametrize("codec", ["msgpack", "v8"])
def test_everything_in_the_file_of_a_program_is_loaded(file: Path, codec: str):
    before = file.read_bytes()
    seen: list[int] = []
    with open_kv(codec=codec) as kv:
        assert kv.load_deno(file, progress=seen.append) == 608
        assert seen[-1] == 608
        first = kv.get(("z", "first"))
        assert first.value == {"name": "Ada", "tags": {"admin"}, "at": datetime.fromtimestamp(0.005, UTC)}
        one, two, nan, nothing = kv.get(("b",)).value
        assert (one, two, nan != nan, nothing) == (1.0, 2, True, UNDEFINED)
        assert kv.get(("a",)).value == "last"
        assert kv.get(("hits",)).value == KvU64(7)
        assert kv.get((b"\0\1", 1, 1.5, True, "é\0")).versionstamp is not None
        assert kv.count(("many",)) == 600
        expires_at = kv.get(("soon",)).expires_at
        assert expires_at is not None
        stamps = [kv.get(("many", float(n))).versionstamp or "" for n in range(600)]
        assert stamps == sorted(stamps)
        assert (first.versionstamp or "") <= stamps[0] < stamps[-1] <= (kv.get(("a",)).versionstamp or "")
        [message] = kv.messages()
        assert (message.value, message.redeliveries, message.keys_if_undelivered) == (
            {"to": "ada"},
            2,
            (("failed", 1.0),),
        )
        assert abs(message.ready_at - expires_at) < 60_000
    assert file.read_bytes() == before


async def test_the_asynchronous_store_loads_the_same(file: Path):
    async with open_async_kv() as kv:
        assert await kv.load_deno(str(file)) == 608
        assert (await kv.get(("hits",))).value == KvU64(7)


@pytest.mark.servers
def test_the_command_recognises_the_file(file: Path, tmp_path: Path):
    def load(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kvmodels", "load", str(file), "--format", "deno", "-d", "loaded.db", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (load().stdout, load().returncode) == ("608 keys loaded\n", 3), "the second load finds a store in use"
    refused = load("--into-used")
    assert (refused.returncode, "empty store only" in refused.stderr) == (2, True)
    with open_kv(tmp_path / "loaded.db") as kv:
        assert kv.get(("hits",)).value == KvU64(7)


def test_other_files_are_refused_and_nothing_is_loaded(file: Path, tmp_path: Path):
    (tmp_path / "text").write_text("no database " * 200)
    with open_kv(tmp_path / "own.db") as own:
        own.set(("a",), 1)
    shutil.copy(file, tmp_path / "later")
    shutil.copy(file, tmp_path / "damaged")
    with closing(sqlite3.connect(tmp_path / "later")) as later, later:
        later.execute("UPDATE migration_state SET version = 9")
    with closing(sqlite3.connect(tmp_path / "damaged")) as damaged, damaged:
        damaged.execute("UPDATE kv SET v = x'ff0f6f' WHERE k IN (SELECT max(k) FROM kv)")
    with open_kv() as kv:
        for name, error in (
            ("text", ForeignFileError),
            ("own.db", ForeignFileError),
            ("later", UnsupportedError),
            ("damaged", DecodeError),
            ("missing", EngineError),
            ("", InvalidArgumentError),
        ):
            with pytest.raises(error):
                kv.load_deno(tmp_path / name if name else "")
            assert kv.count(()) == 0, name
        with pytest.raises(InvalidArgumentError):
            kv.load_deno(file, progress=5)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError):
            kv.load_deno(5)  # type: ignore[arg-type]
        kv.set(("a",), 1)
        with pytest.raises(EngineError, match="empty"):
            kv.load_deno(file)
        assert [entry.key for entry in kv.list(())] == [("a",)]
