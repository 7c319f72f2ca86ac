"""``kvmodels serve`` refuses wrong usage before it listens; ``tests/serve/test_http.py`` runs it."""

from __future__ import annotations

import pytest

from kvmodels import Database, KvModel, PrimaryKey, Unique, open_kv

TOKEN = ("--access-token", "a-long-secret")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "there is no access token"),
        (("--access-token", "short"), "an access token is too short"),
        ((*TOKEN, "--addr", "4512"), "'4512' is not an address"),
        ((*TOKEN, "--addr", "127.0.0.1:99999"), "is not an address"),
        ((*TOKEN, "--tls-cert", "cert.pem"), "TLS needs a certificate and its private key"),
        ((*TOKEN, "--tls-cert", "cert.pem", "--tls-key", "key.pem"), "hold no certificate"),
        ((*TOKEN, "--addr", "192.0.2.1:4512"), "cannot listen on 192.0.2.1:4512"),
    ],
)
def test_wrong_usage_is_refused(run, monkeypatch, words, message):
    monkeypatch.delenv("DENO_KV_ACCESS_TOKEN", raising=False)
    result = run("serve", "kv.db", "--create", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "a-long-secret" not in result.stderr


@pytest.mark.parametrize("name", ["shpo.db", "lmdb:///shpo.lmdb"])
@pytest.mark.parametrize("options", [(), ("--allow-model-writes",)])
def test_a_misspelt_name_creates_no_store(run, tmp_path, name, options):
    listening = (*TOKEN, "--addr", "192.0.2.1:4512")
    result = run("serve", name, *options, *listening)
    assert result.exit_code == 2
    assert f"no store '{name}'" in result.stderr
    assert "--create begins with an empty store" in result.stderr
    assert not list(tmp_path.glob("shpo*"))
    assert "cannot listen on" in run("serve", name, "--create", *options, *listening).stderr
    assert "cannot listen on" in run("serve", name, *options, *listening).stderr, "it exists now"


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]
    email: Unique[str]


def fill_raw():
    with open_kv("python.db") as kv:
        kv.set(("a",), {"x": 1})


def fill_models():
    with Database("python.db", models=[Author]) as db:
        db[Author].create(id=1, email="ada@example.com")


@pytest.mark.parametrize("fill", [fill_raw, fill_models])
def test_a_store_of_another_codec_is_not_served_but_its_copy(run, fill):
    fill()
    result = run("serve", "python.db", *TOKEN)
    assert result.exit_code == 2
    assert "Deno cannot read the values of this store" in result.stderr
    assert "kvmodels copy STORE NEW --codec v8" in result.stderr
    assert run("copy", "python.db", "deno.db", "--codec", "v8").exit_code == 0
    result = run("serve", "deno.db", *TOKEN, "--addr", "192.0.2.1:4512")
    assert "cannot listen on" in result.stderr, "the store was accepted"


def test_the_copy_with_the_codec_of_deno_has_the_records_and_their_entries(run):
    fill_models()
    assert run("dump", "-d", "python.db", "-o", "python.dump").exit_code == 0
    assert run("load", "python.dump", "-d", "deno.db", "--codec", "v8").exit_code == 0
    with Database("deno.db", models=[Author], codec="v8") as db:
        assert db[Author].get(email="ada@example.com").id == 1
        assert db.check().ok
