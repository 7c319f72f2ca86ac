"""``keys``, ``get``, ``set``, ``delete`` and ``watch``."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from kvmodels import KvU64, open_kv
from kvmodels.keys import Key
from tests.cli.conftest import entries_in

KEYS: list[Key] = [
    ("a", 1),
    ("a", "1"),
    ("a", 1.0),
    ("a", True),
    ("a", b"\xff\x00"),
    ("null",),
    (2**70, -1),
    ("ä ö", 'x"y'),
]


@pytest.fixture(params=["kv.db"])
def url(request, folder):
    with open_kv(request.param) as kv:
        for number, key in enumerate(KEYS):
            kv.set(key, {"number": number})
    return request.param


@pytest.mark.parametrize("url", ["kv.db", "lmdb:///kv.lmdb"], indirect=True)
def test_every_printed_key_can_be_given_back(url, run):
    printed = run("keys", "-d", url).stdout.splitlines()
    assert len(printed) == len(KEYS)
    with open_kv(url) as kv:
        stored = [entry.value for entry in kv.list(())]
    assert [json.loads(run("get", line, "-d", url).stdout) for line in printed] == stored
    for line in printed:
        assert run("set", line, "changed", "-d", url).exit_code == 0
        assert run("get", line, "-d", url).stdout == '"changed"\n'
        assert run("delete", line, "-d", url).exit_code == 0
    assert run("keys", "-d", url).stdout == ""


def test_parts_are_json_or_text(url, run):
    assert run("get", "a", "1", "-d", url).stdout == '{"number": 0}\n'
    assert run("get", "a", '"1"', "-d", url).stdout == '{"number": 1}\n'
    assert run("get", "a", '{"$float": "1.0"}', "-d", url).stdout == '{"number": 2}\n'
    assert run("get", "null", "-d", url).stdout == '{"number": 5}\n'
    assert run("keys", "a", "--limit", "1", "--reverse", "-d", url).stdout == '["a",true]\n'


def test_values_keep_their_types(url, run):
    for word, value in (("7", 7), ("text", "text"), ('{"$u64": "7"}', KvU64(7)), ("-", ["from", "stdin"])):
        assert run("set", "value", word, "-d", url, stdin='["from", "stdin"]\n').exit_code == 0
        with open_kv(url) as kv:
            assert kv.get(("value",)).value == value
    run("set", "value", "soon gone", "--expire-in", "100", "-d", url)
    found = json.loads(run("get", "value", "--json", "-d", url).stdout)
    assert found.keys() == {"key", "value", "versionstamp", "expires_at"}
    assert found["expires_at"] > 0


def test_absent_keys_are_exit_code_1_and_change_nothing(url, run):
    before = entries_in(url)
    for words in (["get", "b"], ["delete", "b"], ["delete", "b", "--prefix", "--yes"]):
        result = run(*words, "-d", url)
        assert (result.exit_code, result.stdout, result.stderr) == (1, "", 'Error: no key ["b"]\n')
    assert entries_in(url) == before


def test_deleting_a_prefix_needs_an_answer(url, run):
    refused = run("delete", "a", "--prefix", "-d", url)
    assert refused.exit_code == 1
    assert "--yes" in refused.stderr
    assert len(run("keys", "a", "-d", url).stdout.splitlines()) == 5
    assert run("delete", "a", "--prefix", "--yes", "-d", url).exit_code == 0
    assert run("keys", "a", "-d", url).stdout == ""


def test_lists_as_json(url, run):
    assert json.loads(run("keys", "null", "--json", "-d", url).stdout) == []
    found = json.loads(run("keys", "a", "--json", "--values", "-d", url).stdout)
    assert found[0]["key"] == ["a", {"$bytes": "/wA="}]
    assert found[0]["value"] == {"number": 4}


def test_a_watch_prints_the_present_state_first(url, run):
    [line] = run("watch", "null", "--timeout", "0", "-d", url).stdout.splitlines()
    assert json.loads(line)["value"] == {"number": 5}
    [line] = run("watch", "absent", "--timeout", "0", "-d", url).stdout.splitlines()
    assert json.loads(line)["versionstamp"] is None


def test_malformed_operands_are_refused_and_change_nothing(url, run):
    before = entries_in(url)
    for words, message in (
        (["get", '["a",'], "malformed JSON"),
        (["get", '"a'], "malformed JSON"),
        (["get", "a", '{"b": 1}'], "this is not a key"),
        (["get", '["a"]', "b"], "this is not a key"),
        (["get", "[null]"], "this is not a key"),
        (["set", "a", '{"b": '], "malformed JSON"),
        (["set", "a", '{"$bytes": "?"}'], "this is not a value"),
        (["set", "[]", "1"], "the key is empty"),
        (["set", "a"], "Missing argument"),
        (["watch", "[]"], "the key is empty"),
        (["watch", "a", "--since", "0" * 20], "--since needs --prefix"),
        (["watch", "a", "--prefix", "--since", "now"], "since"),
        (["set", "a", "1", "--expire-in", "-1"], "--expire-in"),
        (["keys", "--limit", "0"], "--limit"),
    ):
        result = run(*words, "-d", url)
        assert (result.exit_code, result.stdout) == (2, ""), words
        assert message in result.stderr
    refused = run("set", "__kvmodels__", "1", "-d", url)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "the key is reserved" in refused.stderr
    assert entries_in(url) == before


def test_keys_of_models_are_read_but_never_written(run):
    run("apply", "-d", "shop_app:shop")
    for database in ("shop.db", "shop_app:shop"):
        result = run("set", "books", "1", "x", "-d", database)
        assert result.exit_code == 1
        assert "reserved" in result.stderr


def test_a_locked_file_is_an_error_of_the_store(url, folder, run):
    (folder / "busy_app.py").write_text(
        "from kvmodels import AsyncDatabase\ndb = AsyncDatabase('kv.db', busy_timeout=0)\n"
    )
    before = entries_in(url)
    with closing(sqlite3.connect(url)) as other:
        other.execute("BEGIN IMMEDIATE")
        result = run("set", "a", "3", "-d", "busy_app:db")
    assert result.exit_code == 3
    assert "locked" in result.stderr or "busy" in result.stderr
    assert entries_in(url) == before


@pytest.mark.parametrize("url", ["changes.db", "lmdb:///changes.lmdb"])
def test_a_prefix_is_watched_in_a_store_with_a_change_log(folder, run, url):
    with open_kv(url) as kv:
        kv.set(("a", 1), "one")
    refused = run("watch", "a", "--prefix", "--timeout", "0", "-d", url)
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "A program switches it on" in refused.stderr
    with open_kv(url, change_log=3600) as kv:
        start = kv.set(("b", 2), "other").versionstamp
        kv.set(("a", 2), "two")
        kv.delete(("a", 1))
    lines = run("watch", "a", "--prefix", "--timeout", "0", "-d", url).stdout.splitlines()
    assert [json.loads(line)["key"] for line in lines] == [["a", 2]]
    assert start is not None
    lines = run("watch", "[]", "--prefix", "--since", start, "--timeout", "0", "-d", url).stdout.splitlines()
    assert [(json.loads(line)["key"], json.loads(line)["value"]) for line in lines] == [
        (["a", 2], "two"),
        (["a", 1], None),
    ]


def test_a_store_of_another_codec_is_read_and_written_in_it(folder, run):
    with open_kv("deno.db", codec="v8") as kv:
        kv.set(("a",), {"b": 1})
    assert run("set", "c", '["d"]', "-d", "deno.db").exit_code == 0
    assert run("keys", "--values", "-d", "deno.db").stdout == '["a"]\t{"b": 1}\n["c"]\t["d"]\n'
    with open_kv("deno.db", codec="v8") as kv:
        assert kv.get(("c",)).value == ["d"]


@pytest.mark.servers
def test_a_server_is_opened_by_its_url(folder, run, databases):
    url = databases.url()
    with open_kv(url) as kv:
        kv.set(("a",), 1)
    assert run("set", "b", "2", "-d", url).exit_code == 0
    assert run("keys", "--values", "-d", url).stdout == '["a"]\t1\n["b"]\t2\n'
    assert run("delete", "a", "--readonly", "-d", url).exit_code == 2
    assert run("check", "-d", url).exit_code == 0
