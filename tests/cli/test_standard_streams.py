"""Streams that are full, closed, of another encoding or a pipe; Ctrl-C while modules are imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kvmodels import open_kv
from tests.source_tree import REPOSITORY

COMMAND = [sys.executable, "-m", "kvmodels"]


@pytest.fixture
def shell(folder: Path):
    """Run a line of the shell in a folder with the store ``kv.db``, in which ``kvmodels`` is the command."""
    with open_kv("kv.db") as kv:
        kv.set(("é",), "ü")

    def invoke(line: str, **environment: str) -> tuple[int, str, str]:
        env = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
        script = f'kvmodels() {{ "{sys.executable}" -m kvmodels "$@"; }}\n{line}'
        done = subprocess.run(["bash", "-c", script], env=env, capture_output=True)
        return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")

    return invoke


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("kvmodels keys -d kv.db > /dev/full", "No space left on device"),
        ("kvmodels --help > /dev/full", "No space left on device"),
        ("kvmodels dump -d kv.db >&-", "Bad file descriptor"),
    ],
)
def test_output_that_cannot_be_written_is_an_error_in_one_line(shell, line, reason):
    code, out, err = shell(line)
    assert (code, out) == (3, "")
    assert err.splitlines()[-1] == f"Error: the output cannot be written: {reason}"
    assert "Traceback" not in err


@pytest.mark.servers
def test_a_store_never_gets_the_descriptor_of_a_closed_stream(shell):
    code, _, err = shell("kvmodels set a 1 -d kv.db <&- >&- 2>&-; kvmodels load - -d new.db <&-; test ! -e new.db")
    assert (code, "Traceback" in err, "the dump is cut off" in err) == (0, False, False)
    with open_kv("kv.db") as kv:
        assert kv.get(("a",)).value == 1


@pytest.mark.servers
def test_input_and_output_are_utf8_in_the_locale_c(shell):
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    lines = "kvmodels get '[\"\\u00e9\"]' -d kv.db; echo ö | kvmodels set a - -d kv.db; kvmodels get a -d kv.db"
    assert shell(lines, **ascii_only) == (0, '"ü"\n"ö"\n', "")
    assert shell(lines, LC_ALL="C") == (0, '"ü"\n"ö"\n', "")
    code, _, err = shell("printf '\\374' | kvmodels set a - -d kv.db", LC_ALL="C")
    assert (code, err.startswith("Error: stdin is not text in UTF-8")) == (2, True)
    code, _, err = shell("printf '\\374' | kvmodels insert books - -d shop_app:make", LC_ALL="C")
    assert (code, "Traceback" in err, "UTF-8" in err) == (2, False, True)


@pytest.mark.parametrize("module", ["typer", "shop_app"])
def test_an_interrupt_during_imports_ends_with_130(folder, module):
    os.mkfifo("imported")
    (folder / f"{module}.py").write_text("import time\nopen('imported', 'w').close()\ntime.sleep(600)\n")
    process = subprocess.Popen(
        [*COMMAND, "keys", "-d", "shop_app:make"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(REPOSITORY)))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with open("imported"):  # waits until the module is imported
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, b"Traceback" in err) == (130, b"", False)


def test_a_dump_and_records_are_read_from_a_pipe(folder, run):
    run("apply", "-d", "shop_app:make")
    run("set", "a", "1", "-d", "other.db")
    assert run("set", "b", "1", "-d", "shop_app:make").exit_code == 0
    assert run("dump", "-o", "d.ndjson", "-d", "shop_app:make").exit_code == 0
    os.mkfifo("pipe")
    record = b'{"isbn": "1", "title": "t", "genre": "g"}\n'
    for content, words in (
        ((folder / "d.ndjson").read_bytes(), ("load", "pipe", "-d", "new.db")),
        (record, ("insert", "books", "pipe", "-d", "shop_app:make")),
    ):
        writer = threading.Thread(target=(folder / "pipe").write_bytes, args=(content,))
        writer.start()
        result = run(*words)
        writer.join()
        assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("words", [("keys", "-d", "pipe"), ("load", "shop_app.py", "-d", "pipe"), ("restore", "pipe")])
def test_a_pipe_is_no_store(folder, run, words):
    os.mkfifo("pipe")
    with open_kv("kv.db") as kv:
        kv.dump("d.ndjson")
    words = tuple("d.ndjson" if word == "shop_app.py" else word for word in words)
    result = run(*words, *(() if "-d" in words else ("-d", "new.db")))
    assert (result.exit_code, "the path is not a file" in result.stderr) == (3, True)
    os.mkdir("store.lmdb")
    os.mkfifo("store.lmdb/data.mdb")
    assert "the path is not a file" in run("keys", "-d", "lmdb:///store.lmdb").stderr


@pytest.mark.parametrize("content", ["", "nonsense\n", "[1]\n", '{"a": 1}\n', '{"kvmodels_dump": 9}\n', "\x00\xff"])
def test_a_file_that_is_no_dump_creates_no_store(folder, run, content):
    Path("d.ndjson").write_text(content, "latin-1")
    for words in ((), ("--codec", "v8"), ("--format", "deno")):
        if words == ("--format", "deno") and content in ("", '{"a": 1}\n', '{"kvmodels_dump": 9}\n'):
            continue  # an empty file is a dump of nothing there, and every line of an object may be an entry
        result = run("load", "d.ndjson", "-d", "new.db", *words)
        assert (result.exit_code, "KV803" in result.stderr) == (3, True)
        assert not (folder / "new.db").exists()


def test_a_dump_of_an_unknown_codec_is_refused(folder, run):
    run("set", "a", "1", "-d", "shop_app:make")
    run("dump", "-o", "d.ndjson", "-d", "shop_app:make")
    run("dump", "books", "-o", "r.ndjson", "-d", "shop_app:make")
    for name in ("d.ndjson", "r.ndjson"):
        Path("z.ndjson").write_text(Path(name).read_text().replace('"msgpack"', '"future"'))
        for words in (("-d", "new.db"), ("--into-used", "-d", "shop_app:make")):
            result = run("load", "z.ndjson", *words)
            assert result.exit_code == 3
            if name == "d.ndjson" or "--into-used" in words:
                assert "a dump of codec 'future', known are msgpack and v8" in result.stderr


def test_hints_name_options_of_the_command(folder, run):
    from_program = run("apply", "-d", "shop_app:make")
    assert from_program.exit_code == 0
    (folder / "less_app.py").write_text(
        "from kvmodels import Database, KvModel, PrimaryKey\n"
        "class Book(KvModel, collection='books'):\n    isbn: PrimaryKey[str]\n    title: str\n    genre: str\n"
        "def db():\n    return Database('shop.db', models=[Book])\n"
    )
    planned = run("plan", "-d", "less_app:db").stdout
    assert "[--allow drop_index]" in planned
    refused = run("apply", "--yes", "-d", "less_app:db")
    assert (refused.exit_code, "KV804" in refused.stderr) == (1, True)
    for text in (planned, refused.stderr):
        assert "allow=" not in text
        assert "db." not in text
    with open_kv("cut.db") as kv:
        kv.unsafe().set(("__kvmodels__", "header"), {"format": 1, "collections": {}, "loading": "x", "before": None})
    with open_kv("kv.db") as kv:
        kv.set(("a",), 1)
        kv.dump("d.ndjson")
    for words in (("load", "d.ndjson"), ("info",)):
        assert run(*words, "-d", "cut.db").stderr.endswith("if it was interrupted: kvmodels load FILE --restart.\n")
    assert run("load", "d.ndjson", "--restart", "-d", "cut.db").exit_code == 0


def test_explain_of_an_index_that_is_not_built_says_no(folder, run):
    (folder / "old_app.py").write_text(
        "from kvmodels import Database, KvModel, PrimaryKey\n"
        "class Book(KvModel, collection='books'):\n    isbn: PrimaryKey[str]\n    title: str\n    genre: str\n"
        "def db():\n    return Database('shop.db', models=[Book])\n"
    )
    (folder / "book.json").write_text('{"isbn": "1", "title": "t", "genre": "g"}')
    assert run("insert", "books", "book.json", "-d", "old_app:db").exit_code == 0
    result = run("explain", "books", "genre=g", "-d", "shop_app:make")
    assert (result.exit_code, "KV802" in result.stderr, "kvmodels apply" in result.stderr) == (1, True, True)


def test_a_row_that_a_repair_removes_is_not_called_repaired(folder, run):
    (folder / "book.json").write_text('{"isbn": "1", "title": "t", "genre": "g"}')
    run("insert", "books", "book.json", "-d", "shop_app:make")
    with open_kv("shop.db") as kv:
        kv.unsafe().set(("books", "1"), "no document")
    result = run("check", "--repair=all", "--yes", "-d", "shop_app:make")
    assert "undecodable books '1'" in result.stdout
    assert result.stdout.count("; removed") == 1
    assert ", 1 removed" in result.stdout.splitlines()[0]
