"""Records with ``SecretStr`` and ``SecretBytes``: exported as they are, masked in tables, refused as masks."""

from __future__ import annotations

import csv
import io
import json
from importlib import import_module

import pytest

PROGRAM = """
from pydantic import BaseModel, ConfigDict, Secret, SecretBytes, SecretStr, field_serializer
from kvmodels import Database, KvModel, PrimaryKey

class Login(BaseModel):
    user: str
    password: SecretStr

class Account(KvModel, collection="accounts"):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    id: PrimaryKey[int]
    token: SecretStr
    key: SecretBytes = SecretBytes(b"")
    login: Login | None = None
    old: list[SecretStr] = []
    each: set[SecretStr] = set()
    by_name: dict[str, dict[SecretStr, Login]] = {}
    hidden: SecretStr = SecretStr("x")
    pins: list[Secret[str]] = []
    name: str = "**********"

    @field_serializer("hidden", when_used="json")
    def shown(self, value: SecretStr) -> str:
        return f"<{len(value)} characters>"

class Raw(KvModel, collection="raws"):
    id: PrimaryKey[int]
    data: bytes = b""

class Plain(KvModel, collection="plains"):
    id: PrimaryKey[int]
    text: str = "**********"

MODELS = [Account, Raw, Plain]

def db():
    return Database("s.db", models=MODELS)

def fill():
    login = Login(user="ada", password="in-login")
    with db() as found:
        found[Account].create(
            id=1, token="in-token", key=b"\\xffkey", login=login, old=["in-old", ""], each=["in-each", "too"],
            by_name={"a": {"in-key": login, "second": login}}, pins=["in-pin"],
        )
        found[Raw].create(id=1, data=b"\\xff")
        found[Plain].create(id=1)
"""
TEXTS = ("in-token", "in-login", "in-old", "in-each", "too", "in-key", "second", "in-pin")


@pytest.fixture
def store(folder, run, monkeypatch):
    (folder / "secret_app.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(folder))
    vars(import_module("secret_app"))["fill"]()

    def invoke(*words: str, stdin: str | None = None):
        return run(*words, "-d", "secret_app:db", stdin=stdin)

    return invoke


@pytest.mark.parametrize("words", [("--nl",), ("--json",), ("--csv",)])
def test_machine_formats_have_the_secrets_and_say_so(store, words):
    result = store("export", "accounts", *words)
    assert all(text in result.stdout for text in TEXTS)
    assert (
        result.stderr
        == "warning: the output has secrets as clear text: token, key, login, old, each, by_name, hidden, pins\n"
    )
    if words != ("--csv",):
        one = json.loads(result.stdout) if words == ("--nl",) else json.loads(result.stdout)[0]
        assert (one["hidden"], one["name"], one["old"], one["key"]) == (
            "<1 characters>",
            "**********",
            ["in-old", ""],
            "_2tleQ==",
        )
        assert sorted(one["each"]) == ["in-each", "too"]
        assert one["by_name"]["a"]["second"] == {"user": "ada", "password": "in-login"}


def test_an_export_is_inserted_again_as_it_was(store):
    lines = store("export", "accounts").stdout
    before = store("get", "accounts", "1").stdout
    again = json.loads(lines)
    del again["hidden"]
    assert store("insert", "accounts", "--replace", "-", stdin=json.dumps(again)).exit_code == 0
    kept = json.loads(store("get", "accounts", "1").stdout)
    assert kept == json.loads(before) | {"each": kept["each"]}
    assert sorted(kept["each"]["$set"]) == ["in-each", "too"]


@pytest.mark.parametrize("words", [("rows", "accounts"), ("export", "accounts")])
def test_tables_mask_secrets(store, run, words):
    result = store(*words, "--table")
    assert not any(text in result.stdout for text in TEXTS)
    assert ("**********" in result.stdout, result.stderr) == (True, "")
    stored = run(*words, "--table", "-d", "s.db")
    assert not any(text in stored.stdout for text in ("in-token", "in-old", "in-each", "too", "in-key"))


def test_a_url_alone_warns_of_the_secrets_that_the_catalogue_tells(store, run):
    result = run("export", "accounts", "-d", "s.db")
    assert "in-token" in result.stdout
    assert (
        result.stderr == "warning: the output has secrets as clear text: token, key, old, each, by_name, hidden, pins\n"
    )
    assert run("export", "plains", "-d", "s.db").stderr == ""


@pytest.mark.parametrize(
    "record",
    [
        {"id": 2, "token": "**********"},
        {"id": 2, "token": "t", "key": "KioqKioqKioqKg=="},
        {"id": 2, "token": "t", "login": {"user": "a", "password": "**********"}},
        {"id": 2, "token": "t", "old": ["**********"]},
        {"id": 2, "token": "t", "by_name": {"a": {"**********": {"user": "a", "password": "b"}}}},
    ],
)
def test_a_mask_is_refused_as_the_value_of_a_secret(store, record):
    good = json.dumps({"id": 3, "token": "t", "name": "**********"})
    result = store("insert", "accounts", "-", stdin=f"{good}\n{json.dumps(record)}\n")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: line 2: ")
    assert "mask of a secret" in result.stderr
    assert store("count", "accounts").stdout == "1\n"
    assert store("insert", "accounts", "-", "--csv", stdin="id,token\n4,**********\n").exit_code == 2
    assert store("insert", "plains", "-", stdin='{"id": 2, "text": "**********"}').exit_code == 0


def test_a_record_that_is_no_json_is_named(store):
    for words in ("--nl", "--json", "--csv"):
        result = store("export", "raws", words)
        assert (result.exit_code, "Raw 1" in result.stderr, "ser_json_bytes" in result.stderr) == (1, True, True)
    assert list(csv.reader(io.StringIO(store("export", "raws", "--table").stdout)))[1] == ["1   _w=="]
