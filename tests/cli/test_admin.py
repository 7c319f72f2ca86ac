"""``kvmodels admin`` as a process: the address with the token, the page, and the end by Ctrl+C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import httpx2
import pytest


@pytest.mark.servers
def test_the_page_is_served_with_a_token_until_it_is_interrupted(folder):
    command = [sys.executable, "-u", "-m", "kvmodels", "admin", "--port", "0", "-d", "shop_app:make"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.getcwd(), *sys.path])}
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts the tests in the background ignores this signal, and so would the process.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), process.stderr and process.stderr.read()
        with httpx2.Client(follow_redirects=True, timeout=60) as client:
            base, _, _ = address.partition("/login")
            assert client.get(f"{base}/keys").status_code == 401
            assert "Collections" in client.get(address).text
            assert "books" in client.get(f"{base}/records/books").text
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_what_cannot_be_served_is_said_in_words(run):
    result = run("admin", "-d", "shop_app:make", "--token", "short")
    assert result.exit_code == 2
    assert "at least 16 characters" in result.stderr
    result = run("admin", "-d", "shop_app:make", "--host", "203.0.113.1")
    assert result.exit_code == 2
    assert "the page cannot be served" in result.stderr


def test_a_missing_extra_is_named(run, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run("admin", "-d", "some.db")
    assert result.exit_code == 2
    assert "pip install 'kvmodels[admin]'" in result.stderr
