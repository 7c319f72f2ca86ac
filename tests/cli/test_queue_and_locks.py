"""``queue``, ``queue dead`` and ``locks``."""

from __future__ import annotations

import json
import time

from kvmodels import open_kv
from kvmodels.api._sync.kv import Kv
from kvmodels.engines.url import open_engine
from kvmodels.flows.kv.leases import Leases
from kvmodels.flows.kv.queue import Delivery, take_message
from kvmodels.runtime.sync import run as run_flow
from tests.kv.stores import Clock
from tests.locks.claims import claim_of
from tests.store_codecs import form_of, kv_on


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


def test_dead_letters_are_listed_counted_and_put_back(folder, run):
    with open_kv("kv.db") as kv:
        kv.set(("failed", 0), "no dead letter")
        for number in (1, 2):
            kv.enqueue({"to": number}, keys_if_undelivered=[("failed", number), ("copy", number)], backoff_schedule=())
        give_up_all(kv)
        kv.set(("failed", 2), "dealt with")
        kv.delete(("copy", 2))
    assert run("queue", "-d", "kv.db").stderr == "the queue has no messages\n"
    [letter] = json.loads(run("queue", "dead", "--json", "-d", "kv.db").stdout)
    assert (sorted(letter["keys"]), letter["value"]) == ([["copy", 1], ["failed", 1]], {"to": 1})
    assert '"dead_letters": 1' in run("stats", "--json", "-d", "kv.db").stdout
    assert json.loads(run("queue", "dead", "failed", "1", "--json", "-d", "kv.db").stdout)[0]["keys"] == [["failed", 1]]
    assert run("queue", "dead", "other", "--retry", "-d", "kv.db").stderr == "0 messages are in the queue again\n"
    assert run("queue", "dead", "--retry", "-d", "kv.db").stderr == "1 message is in the queue again\n"
    assert run("queue", "dead", "-d", "kv.db").stdout == ""
    [message] = json.loads(run("queue", "--json", "-d", "kv.db").stdout)
    assert (message["value"], sorted(message["keys_if_undelivered"])) == ({"to": 1}, [["copy", 1], ["failed", 1]])
    assert '"dead_letters": 0' in run("stats", "--json", "-d", "kv.db").stdout
    with open_kv("kv.db") as kv:
        assert kv.get(("failed", 0)).value == "no dead letter"
    assert run("queue", "dead", '["a', "-d", "kv.db").exit_code == 2


def give_up_all(kv: Kv) -> None:
    """Let the last delivery of every message fail."""
    engine = kv._opening.open()
    leases = Leases(engine.capabilities.traits, time.monotonic)
    while isinstance(
        delivery := run_flow(engine, take_message(form_of(engine), "w", 1_000, lambda _: 0, leases)), Delivery
    ):
        run_flow(engine, delivery.fail())


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
    kv = kv_on(engine)
    assert run_flow(engine, claim_of(engine, "holder", 1000).acquire(engine.limits, 0))
    run_flow(engine, claim_of(engine, "waiter", 1000)._stand_in_line(clock.ms))
    assert run_flow(engine, claim_of(engine, "holder", 5000, name="b").acquire(engine.limits, 0))

    first, second = kv.locks()
    assert (first.name, first.held, first.expires_at, first.waiting) == ("a", True, clock.ms + 1000, 1)
    assert (second.name, second.held, second.expires_at, second.waiting) == ("b", True, clock.ms + 5000, 0)
    clock.ms += 1000
    assert [(one.name, one.held) for one in kv.locks()] == [("b", True)]
    engine.close()
