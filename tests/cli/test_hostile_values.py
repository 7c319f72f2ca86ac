"""Stored values that drive a terminal, end a line, change the direction of text, or are formulas to a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest

from kvmodels import Database, KvModel, PrimaryKey, open_kv
from kvmodels.cli.output import Output
from kvmodels.errors import KvModelsError

TITLE, BELL, CSI, BIDI = "\x1b]0;owned\x07", "\x07", "\x9b31m", "\u202eevil\u2066"
EVIL = f"{TITLE}{CSI}{BIDI}\r\n\u2028\x7f"
DRIVING = frozenset("\x1b\x07\x9b\u202e\u2066\r\u2028\x85")
NAME = f"a{CSI}[/red]{BIDI}\nb"


class Note(KvModel, collection="notes"):
    id: PrimaryKey[str]
    text: str


@pytest.fixture
def store(folder, run):
    (folder / "note_app.py").write_text(
        "from kvmodels import AsyncDatabase, KvModel, PrimaryKey\n"
        "class Note(KvModel, collection='notes'):\n    id: PrimaryKey[str]\n    text: str\n"
        "db = AsyncDatabase('notes.db', models=[Note])\n"
    )
    odd = type("Odd", (KvModel,), {"__annotations__": {"id": PrimaryKey[int]}}, collection=NAME)
    with Database("notes.db", models=[Note, odd]) as db:
        db[Note].create(id=EVIL, text=EVIL)
        db[odd].create(id=1)
        db.kv.set((EVIL,), {EVIL: EVIL})
        db.kv.enqueue(EVIL, keys_if_undelivered=[(EVIL,)])
    return run


class Terminal(io.StringIO):
    """A terminal in place of stdout, which keeps what is written to it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "words",
    [
        ("rows", "notes", "--table"), ("rows", "notes", "--json"), ("rows", "notes", "--nl"), ("export", "notes"),
        ("rows", "notes", f"id={EVIL}", "--table", "-d", "note_app:db"), ("rows", EVIL),
        ("explain", "notes", f"id={EVIL}", "-d", "note_app:db"), ("keys",), ("keys", "--values"), ("keys", "--json"),
        ("get", EVIL), ("get", EVIL, "--json"), ("get", "nothing", EVIL), ("queue",), ("queue", "--json"), ("info",),
        ("info", "--json"), ("stats",), ("stats", "--json"), ("inspect",), ("indexes",), ("check",), ("dump",),
        ("dump", "--format", "deno"), ("delete", EVIL, "--prefix"), ("watch", EVIL, "--timeout", "0"),
        ("watch", "--prefix"), ("rows", "notes", "--after", EVIL),
    ],
)  # fmt: skip
def test_no_command_prints_characters_that_drive_a_terminal(store, words):
    result = store(*words, *(() if "-d" in words else ("-d", "notes.db")))
    shown = result.stdout + result.stderr
    assert shown
    assert not DRIVING & {*shown}
    if "--table" in words and result.exit_code == 0:
        assert len(result.stdout.splitlines()) == 2, "a line feed in a value begins no row"


def test_json_has_the_same_values(store):
    assert json.loads(store("get", json.dumps(EVIL), "-d", "notes.db").stdout) == {EVIL: EVIL}
    assert json.loads(store("export", "notes", "-d", "notes.db").stdout) == {"id": EVIL, "text": EVIL}
    [line] = [line for line in store("keys", "-d", "notes.db").stdout.splitlines() if "notes" not in line][:1]
    assert json.loads(store("get", line, "-d", "notes.db").stdout) == {EVIL: EVIL}
    for words in (("dump", "-o", "d.ndjson", "-d", "notes.db"), ("load", "d.ndjson", "-d", "again.db")):
        assert store(*words).exit_code == 0
    with open_kv("again.db", readonly=True) as kv:
        assert kv.get((EVIL,)).value == {EVIL: EVIL}


def test_csv_is_escaped_on_a_terminal_and_exact_in_a_pipe(store, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal := Terminal())
        Output().rows(["id"], [{"id": EVIL}], "csv")
    assert "owned" in terminal.getvalue()
    assert not DRIVING & {*terminal.getvalue()}
    piped = store("export", "notes", "--csv", "-d", "notes.db").stdout_bytes.decode()
    assert list(csv.DictReader(io.StringIO(piped, newline=""))) == [{"id": EVIL, "text": EVIL}]


def test_progress_and_errors_show_names_without_their_controls(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with Output().progress() as report:
        report(NAME, 1, 2)
    Output().error(str(KvModelsError(EVIL)))
    Output().message(EVIL)
    assert not (DRIVING - {"\x1b", "\r"}) & {*terminal.getvalue()}
    assert "[/red]" in terminal.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_stays_json_where_the_terminal_has_another_encoding(monkeypatch, encoding):
    written = io.BytesIO()
    value = {"é": "😀", "\ud800": "日本"}
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
    Output().rows(["é", "\ud800"], [value], "nl")
    Output().rows(["é", "\ud800"], [value], "json")
    Output().json(value)
    Output().rows(["é", "\ud800"], [value], "csv")
    Output().rows(["é", "\ud800"], [value], "table")
    sys.stdout.flush()
    lines = written.getvalue().decode(encoding)
    assert json.loads(lines.splitlines()[0]) == value


def test_formulas_are_exact_in_csv_unless_it_is_for_spreadsheets(store, folder):
    texts = ["=1+1", "+41", "-1", "@x", "\tx", "\rx", "＝1", "plain", "'=", ""]
    with Database("formulas.db", models=[Note]) as db:
        for number, text in enumerate(texts):
            db[Note].create(id=str(number), text=text)

    def cells(*words: str) -> list[str]:
        printed = store("export", "notes", "--csv", *words, "-d", "formulas.db").stdout_bytes.decode()
        return [row["text"] for row in csv.DictReader(io.StringIO(printed, newline=""))]

    assert cells() == texts
    assert cells("--for-spreadsheets") == [*(f"'{text}" for text in texts[:7]), *texts[7:]]
    result = store("rows", "notes", "--for-spreadsheets", "-d", "formulas.db")
    assert (result.exit_code, "--csv" in result.stderr) == (2, True)
