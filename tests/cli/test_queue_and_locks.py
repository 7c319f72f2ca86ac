"""``queue``, ``queue dead`` and ``locks``."""

from __future__ import annotations

import json

from kvmodels import open_kv


def test_messages_are_listed_without_being_taken(folder, run):
    with open_kv("kv.db") as kv:
        kv.enqueue({"to": "ada"}, keys_if_undelivered=[("failed", 1)])
        kv.enqueue("later", delay=3600, backoff_schedule=())
    for _ in range(2):
        first, second = json.loads(run("queue", "--json", "-d", "kv.db").stdout)
        assert (first["value"], first["state"], first["redeliveries"]) == ({"to": "ada"}, "waiting", 5)
        assert first["keys_if_undelivered"] == [["failed", 1]]
        assert (second["value"], second["redeliveries"]) == ("later", 0)
    assert '{"to": "ada"}' in run("queue", "--limit", "1", "-d", "kv.db").stdout


def test_dead_letters_are_listed_and_put_back(folder, run):
    with open_kv("kv.db") as kv:
        kv.set(("failed", 1), {"to": "ada"})
    assert run("queue", "-d", "kv.db").stderr == "the queue has no messages\n"
    assert json.loads(run("queue", "dead", "failed", "--json", "-d", "kv.db").stdout) == [
        {"key": ["failed", 1], "value": {"to": "ada"}}
    ]
    assert run("queue", "dead", "failed", "--retry", "-d", "kv.db").stderr == "1 message is in the queue again\n"
    assert run("queue", "dead", "failed", "-d", "kv.db").stdout == ""
    [message] = json.loads(run("queue", "--json", "-d", "kv.db").stdout)
    assert message["value"] == {"to": "ada"}


def test_locks_are_listed_with_those_who_wait(folder, run):
    assert run("locks", "-d", "kv.db").exit_code == 3
    with open_kv("kv.db"):
        pass
    assert run("locks", "-d", "kv.db").stderr == "no locks are held\n"
    with open_kv("kv.db") as kv:
        assert kv.lock("report", ttl=60).acquire()  # a program that ends without releasing it
    [row] = json.loads(run("locks", "--json", "-d", "kv.db").stdout)
    assert (row["name"], row["held"], row["waiting"]) == ("report", True, 0)
