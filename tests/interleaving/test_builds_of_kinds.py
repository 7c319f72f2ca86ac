"""Builds of every kind of index, and writes that they all look at: stopped at any request, and with any answer lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import InvalidArgumentError
from kvmodels.flows.effects import Commit
from kvmodels.runtime.sync import perform
from kvmodels.schema.geometry.point import GeoPoint
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates, StepHistory
from tests.interleaving.exchange import exchange
from tests.interleaving.members import KEPT, LATE, Home, Member
from tests.interleaving.scenes import build
from tests.interleaving.scenes_of_kinds import SPEC
from tests.interleaving.verdict import store_faults
from tests.worlds import in_test_servers

BUILT = (*(index.name or "badges" for index in KEPT), "email", "tags", *LATE)
"""Every index of a kind of its own; those that both releases have are dropped first."""

FEW = ("badges", "per_city", "part", "floor", "terms")
"""One each of unique indexes, aggregates, computed values, conditions and other kinds: `make test` has no more."""

KINDS = pytest.mark.parametrize("name", [*FEW, *in_test_servers(*(name for name in BUILT if name not in FEW))])

LOST = ("lose_answer", "lose_request", "repeat", "echo", "hold")
LOSSY = FaultRates(hold=1e-12)
"""So that every operation carries a token, as in the runs in which answers are lost."""


def crowded(test: Interleaving) -> Process:
    """Four members that share cities, tags and parts, and of which every index has something."""
    ada = test.process(Member)
    for n, name in enumerate("abcd"):
        home = Home(street="low", floor=n) if n else None
        values: dict[str, Any] = {"email": f"E{n}", "badges": [f"b{n}", f"c{n}"], "home": home, "rank": n or None}
        values |= {"spot": GeoPoint(lat=0, lon=n / 1000), "since": n, "until": n + 4 if n % 2 else None}
        test.at_once(
            ada[Member].create(id=name, city="xy"[n % 2], tags=["t", "u", "t"], note="p q", hits=n, shift=n, **values)
        )
    return ada


def drop(test: Interleaving, process: Process, name: str) -> None:
    assert test.at_once(process.drop_index(Member, name))


async def many_changes(process: Process) -> None:
    """A record that the build has to meet is moved, one is removed, one is new, and one takes what was given up."""
    members = process[Member]
    await members.patch(
        "b", zone="s", tags=["v"], badges=["b1"], note="r", home=None, team="blue", city="z", hits=50, shift=6,
        spot=GeoPoint(lat=0, lon=0.002), until=None,
    )  # fmt: skip
    await members.remove("c")
    await members.create(id="e", email="e2", badges=["b2", "c1"], tags=["t"], note="q", rank=7, since=1)
    await members.patch("d", note="p", rank=None, email="E9", spot=None, until=9)


@KINDS
def test_a_build_stopped_at_any_request_beside_writers_is_finished_by_another(name):
    stopped_at = 0
    while True:
        test = Interleaving(schedule=[*["first"] * stopped_at, "first abandon", "writer end", "second end"])
        ada = crowded(test)
        drop(test, ada, name)
        test.add("first", build(test.process(Member), name, Member))
        test.add("writer", many_changes(ada))
        test.add("second", build(test.process(Member), name, Member))
        try:
            history = test.run()
        except InvalidArgumentError:
            break  # the first builder had come to its end
        assert history.outcomes["first"].stopped
        assert history.outcomes["writer"].error is None
        assert history.outcomes["second"].returned.state == "readable", str(history)
        assert store_faults(test.engine, SPEC) == [], str(history)
        stopped_at += 1
    assert stopped_at > 8, "the header, the fence, at least one batch, and the header again"


def commits_of(play: Callable[[Interleaving], None], client: str) -> list[int]:
    """The positions of the commits among the requests of a client that runs alone."""
    test = Interleaving(seed=1, faults=LOSSY)
    play(test)
    mine = [line for line in test.run().lines if line.startswith(f"{client} ")]
    return [position for position, line in enumerate(mine) if line == f"{client} commit"]


def with_faults(
    play: Callable[[Interleaving], None], client: str, position: int, fault: str
) -> tuple[Interleaving, StepHistory]:
    """A run in which one commit goes wrong, then the other client runs, and then what is under way arrives."""
    test = Interleaving(schedule=[*[client] * position, f"{client} commit {fault}"])
    play(test)
    history = test.run()
    assert store_faults(test.engine, SPEC) == [], str(history)
    return test, history


@KINDS
@pytest.mark.parametrize("fault", ["lose_answer", *in_test_servers("echo", "hold")])
def test_an_answer_to_any_commit_of_a_build_may_be_lost_or_come_late(name, fault):
    def play(test: Interleaving) -> None:
        ada = crowded(test)
        drop(test, ada, name)
        test.add("build", build(test.process(Member), name, Member))
        if alone:
            return
        test.add("writer", many_changes(ada))

    alone = True
    positions = commits_of(play, "build")
    assert len(positions) >= 3, "the fence, a batch, and the switch"
    alone = False
    for position in positions:
        _, history = with_faults(play, "build", position, fault)
        assert history.outcomes["build"].returned.state == "readable", str(history)
        assert history.outcomes["writer"].error is None


VERBS: dict[str, tuple[Callable[[Process], Any], Callable[[Process], Any]]] = {
    "create": (
        lambda ada: ada[Member].create(id="n", tags=["t"], badges=["b9"], hits=2**40, rank=-3),
        lambda bob: bob[Member].remove("n"),
    ),
    "patch": (
        lambda ada: ada[Member].patch("b", city="x", tags=["u", "v"], badges=["b1", "b8"], hits=-7, zone="s"),
        lambda bob: bob[Member].patch("b", city="y", tags=["t"], badges=["c1"], hits=1, zone="n"),
    ),
    "remove": (
        lambda ada: ada[Member].remove("b"),
        lambda bob: bob[Member].get_or_create(id="b", defaults={"city": "y", "badges": ["c1"], "tags": ["t"]}),
    ),
    "bulk": (
        lambda ada: ada[Member].bulk_create(
            [Member(id="n", hits=3, badges=["b8"]), Member(id="m", hits=4, tags=["t"], badges=["b9"])]
        ),
        lambda bob: bob[Member].patch("a", badges=["c0"], hits=9),
    ),
    "exchange": (
        lambda ada: ada.run(exchange(ada.context, ada.schema(Member), "a", "b", "badges")),
        lambda bob: bob[Member].patch("a", hits=9, tags=[]),
    ),
}
"""A write, and what somebody else does with the same records afterwards."""


BEGUN = ("per_zone", "per_city", "by_tag", "badges")


def begin(test: Interleaving, name: str) -> None:
    """The first commit of a build, whose process is gone after it."""
    flow, answer = build(test.process(Member), name, Member), None
    while True:
        request = flow.send(answer)
        answer = perform(test.engine, request)
        if isinstance(request, Commit):
            flow.close()
            return


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("building", [True, *in_test_servers(False)])
def test_no_write_is_counted_or_indexed_twice_when_its_answer_is_lost_or_comes_late(verb, fault, building):
    write, afterwards = VERBS[verb]

    def play(test: Interleaving) -> None:
        ada = crowded(test)
        if building:
            for name in BEGUN:
                drop(test, ada, name)
                begin(test, name)
        test.add("ada", write(ada))
        if not alone:
            test.add("bob", afterwards(test.process(Member)))

    alone = True
    positions = commits_of(play, "ada")
    alone = False
    assert positions
    for position in positions:
        test, history = with_faults(play, "ada", position, fault)
        assert history.outcomes["bob"].error is None, str(history)
        for name in BEGUN if building else ():
            assert test.at_once(build(test.process(Member), name, Member)).state == "readable"
        assert store_faults(test.engine, SPEC) == [], str(history)
