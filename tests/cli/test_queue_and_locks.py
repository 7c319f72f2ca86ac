"""``queue``, ``queue dead`` and ``locks``."""

from __future__ import annotations

import json

from kvmodels import open_kv
from kvmodels.api._sync.kv import Kv
from kvmodels.api.opening import Opening
from kvmodels.engines.url import open_engine
from kvmodels.runtime.sync import run as run_flow
from tests.kv.stores import Clock
from tests.locks.claims import FORM, claim_of


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
    assert run("locks", "-d", "kv.db").exit_code == 2
    with open_kv("kv.db"):
        pass
    assert run("locks", "-d", "kv.db").stderr == "no locks are held\n"
    with open_kv("kv.db") as kv:
        assert kv.lock("report", ttl=60).acquire()  # a program that ends without releasing it
    [row] = json.loads(run("locks", "--json", "-d", "kv.db").stdout)
    assert (row["name"], row["held"], row["waiting"]) == ("report", True, 0)


def test_waiters_are_counted_and_ended_leases_left_out():
    clock = Clock()
    engine = open_engine("memory://", clock=clock)
    kv = Kv(Opening.done(engine), FORM)
    assert run_flow(engine, claim_of("holder", 1000).acquire(engine.limits, 0))
    run_flow(engine, claim_of("waiter", 1000)._stand_in_line(clock.ms))
    assert run_flow(engine, claim_of("holder", 5000, name="b").acquire(engine.limits, 0))

    first, second = kv.locks()
    assert (first.name, first.held, first.expires_at, first.waiting) == ("a", True, clock.ms + 1000, 1)
    assert (second.name, second.held, second.expires_at, second.waiting) == ("b", True, clock.ms + 5000, 0)
    clock.ms += 1000
    assert [(one.name, one.held) for one in kv.locks()] == [("b", True)]
    engine.close()
