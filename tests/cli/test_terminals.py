"""Every command on a pseudo-terminal and in pipes, in processes of their own."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kvmodels import open_kv
from tests.cli.many_commands import MARK
from tests.source_tree import REPOSITORY

pytestmark = pytest.mark.servers

APP = ("-d", "shop_app:shop")

# (exit code, words); `URL` stands for the store without classes.
LINES: list[tuple[int, tuple[str, ...]]] = [
    (0, ("version",)),
    (0, ("apply", *APP)),
    (0, ("plan", "--check", *APP)),
    (0, ("set", "settings", "theme", "dark", "-d", "URL")),
    (0, ("set", "settings", "volume", "7", *APP)),
    (0, ("keys", "settings", "-d", "URL")),
    (0, ("get", "settings", "volume", "-d", "URL")),
    (1, ("get", "settings", "nothing", "-d", "URL")),
    (0, ("watch", "settings", "theme", "--timeout", "0", "--json", "-d", "URL")),
    (3, ("watch", "settings", "--prefix", "--timeout", "0", "-d", "URL")),
    (0, ("delete", "settings", "--prefix", "--yes", "-d", "URL")),
    (0, ("indexes", "-d", "URL")),
    (1, ("drop", "nothing", "--yes", "-d", "URL")),
    (0, ("indexes", "drop", "books.genre", "--yes", "-d", "URL")),
    (0, ("indexes", "build", "books.genre", *APP)),
    (0, ("migrate", "books", *APP)),
    (2, ("rotate", "books", "--to", "1", *APP)),
    (0, ("violations", *APP)),
    (0, ("resolve", "books", *APP)),
    (0, ("check", "books", "--repair", *APP)),
    (0, ("check", "-d", "URL")),
    (0, ("info", "-d", "URL")),
    (0, ("stats", "-d", "URL")),
    (0, ("sweep", "-d", "URL")),
    (0, ("inspect", "-d", "URL")),
    (0, ("insert", "books", os.devnull, *APP)),
    (0, ("rows", "books", "genre=novel", "--table", *APP)),
    (0, ("count", "books", "-d", "URL")),
    (0, ("explain", "books", "genre=novel", *APP)),
    (0, ("export", "books", *APP)),
    (2, ("history", "books", "1", *APP)),
    (2, ("trash", "books", *APP)),
    (2, ("undelete", "books", "1", *APP)),
    (1, ("rows", "books", "price=1", *APP)),
    (2, ("search", "books", "novel", *APP)),
    (0, ("queue", "-d", "URL")),
    (0, ("queue", "dead", "-d", "URL")),
    (0, ("locks", "-d", "URL")),
    (0, ("tenants", "-d", "URL")),
    (2, ("tenants", "create", "acme", *APP)),
    (2, ("tenants", "copy", "acme", "trial", *APP)),
    (1, ("tenants", "remove", "acme", "--yes", *APP)),
    (0, ("dump", "-o", "whole.ndjson", "-d", "URL")),
    (0, ("load", "whole.ndjson", "--into-used", "--on-conflict", "update", *APP)),
    (0, ("load", "whole.ndjson", "-d", "loaded.db")),
    (0, ("backup", "backup.db", "-d", "URL")),
    (0, ("restore", "backup.db", "-d", "restored.db")),
    (0, ("copy", "restored.db", "lmdb:///copied.lmdb")),
    (2, ("plan", "-d", "URL")),
    (2, ("plan", "novels", *APP)),
    (2, ("keys", "-d", "missing.db")),
]

TYPED = {("admin",), ("follow",), ("serve",), ("shell",)}
"""Commands that are tested in ``test_admin.py``, ``test_following.py``, ``tests/serve`` and below: they do not end."""


STAMP = re.compile(r'"versionstamp": "\w+"')


class Spoken(NamedTuple):
    """Return the output of a command."""

    code: int
    text: str


def environment(url: str) -> dict[str, str]:
    return {**os.environ, "SHOP": url, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "300", "TERM": "xterm"}


def spoken(text: str) -> list[Spoken]:
    """Split the output of ``tests.cli.many_commands`` into that of each command."""
    parts = text.split(MARK)
    return [Spoken(int(code), before.strip()) for before, code in zip(parts[::2], parts[1::2], strict=False)]


def plain(text: str) -> str:
    """The text that a terminal shows, without colours and moves of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def on_terminal(words: list[str], env: dict[str, str], typed: str = "") -> tuple[int, str]:
    """Run a process on a pseudo-terminal; return its exit code and all that it printed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    os.write(ours, typed.encode())
    printed = b""
    while True:
        try:
            chunk = os.read(ours, 65_536)
        except OSError:  # Linux reports the end of the other side as an error
            break
        if not chunk:
            break
        printed += chunk
    os.close(ours)
    return process.wait(), plain(printed.decode())


@pytest.mark.parametrize("url", ["shop.db", "lmdb:///shop.lmdb"])
def test_every_command_prints_the_same_on_a_terminal_and_in_a_pipe(folder: Path, url):
    lines = [[url if word == "URL" else word for word in words] for _, words in LINES]
    (folder / "lines.json").write_text(json.dumps(lines))
    words = ["-m", "tests.cli.many_commands", str(folder / "lines.json")]
    for place in ("pipe", "terminal"):
        (folder / place).mkdir()
        shutil.copy(folder / "shop_app.py", folder / place)
    os.chdir(folder / "pipe")
    piped = subprocess.run([sys.executable, *words], env=environment(url), capture_output=True, text=True, check=True)
    assert "\x1b" not in piped.stdout + piped.stderr
    os.chdir(folder / "terminal")
    code, text = on_terminal(words, environment(url))
    assert code == 0

    outcomes = zip(LINES, spoken(piped.stdout), spoken(piped.stderr), spoken(text)[::2], strict=True)
    for (expected, line), out, err, shown in outcomes:
        assert (out.code, shown.code) == (expected, expected), (line, out, err, shown)
        assert not (expected > 1 and out.text), line
        for piece in f"{out.text}\n{err.text}".replace("/pipe/", "/terminal/").splitlines():
            assert STAMP.sub("", piece).strip() in STAMP.sub("", shown.text), line


def test_questions_are_asked_on_a_terminal(folder):
    env = environment("shop.db")
    assert on_terminal(["-m", "kvmodels", "apply", *APP], env)[0] == 0
    drop = ["-m", "kvmodels", "indexes", "drop", "books.genre", "-d", "shop.db"]
    code, text = on_terminal(drop, env, "n\n")
    assert (code, "[y/N]" in text, "nothing was changed" in text) == (1, True, True)
    assert on_terminal(drop, env, "y\n")[0] == 0
    code, text = on_terminal(["-m", "kvmodels", "shell", *APP], env, "print(len(models), db.kv is kv)\nexit()\n")
    assert (code, "1 True" in text) == (0, True)


def test_progress_is_shown_on_a_terminal_only(folder):
    env = environment("shop.db")
    (folder / "fill.py").write_text(
        "from shop_app import Book, make\n"
        "with make() as db:\n"
        "    db[Book].bulk_create([Book(isbn=str(n), title=str(n), genre='novel') for n in range(2_000)])\n"
        "    db.drop_index(Book, 'genre')\n"
    )
    subprocess.run([sys.executable, "fill.py"], env=env, check=True)
    code, text = on_terminal(["-m", "kvmodels", "check", *APP], env)
    assert code == 0
    assert "check books" in text
    assert "2000/2000" in text
    code, text = on_terminal(["-m", "kvmodels", "check", "--silent", *APP], env)
    assert text.startswith("ok: ")


def test_a_reader_that_stops_early_ends_the_command_quietly(folder):
    env = environment("shop.db")
    with open_kv("kv.db") as kv:
        for start in range(0, 3_000, 500):
            operation = kv.atomic()
            for number in range(start, start + 500):
                operation.set((number,), "x" * 40)
            operation.commit()
    process = subprocess.Popen(
        [sys.executable, "-m", "kvmodels", "keys", "--values", "-d", "kv.db"],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == '[0]\t"' + "x" * 40 + '"\n'
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 1
    process.stderr.close()


def test_an_interrupt_ends_a_watch_with_130(folder):
    env = environment("shop.db")
    subprocess.run(
        [sys.executable, "-c", "from kvmodels import open_kv; open_kv('kv.db').close()"], env=env, check=True
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "kvmodels", "watch", "a", "-d", "kv.db"],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A test run in the background ignores the signal, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    assert '"key": ["a"]' in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in errors) == (130, False)
