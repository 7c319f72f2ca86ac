"""``kvmodels serve`` refuses wrong usage before it listens; ``tests/serve/test_http.py`` runs it."""

from __future__ import annotations

import pytest

from kvmodels import open_kv

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
    result = run("serve", "kv.db", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "a-long-secret" not in result.stderr


def test_a_store_of_another_codec_is_not_served(run):
    with open_kv("python.db") as kv:
        kv.set(("a",), {"x": 1})
    result = run("serve", "python.db", *TOKEN)
    assert result.exit_code == 2
    assert "Deno cannot read the values of this store" in result.stderr
