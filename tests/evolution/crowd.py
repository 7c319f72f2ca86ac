"""Writers and builders in processes of their own, for ``test_online_build.py``; run as ``python -m``."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from kvmodels import (
    Database,
    IntegrityError,
    KvModel,
    RetriesExhaustedError,
    SchemaMismatchError,
    StaleObjectError,
)
from kvmodels._support import switches
from tests.evolution import residents
from tests.evolution.accounts import Touched
from tests.evolution.releases import First, UniqueName, WithPlan, user

RELEASES: dict[str, type[KvModel]] = {"plan": WithPlan, "name": UniqueName, "kinds": residents.Resident}


def change(users: Any, rng: random.Random, keys: int) -> None:
    """One random write, in a range of keys that all writers share."""
    n = rng.randrange(keys)
    changes = {"color": rng.choice(["red", "blue", "green"]), "name": f"name-{rng.randrange(2 * keys)}"}
    kind = rng.randrange(5)
    if kind == 0:
        users.remove(n)
    elif kind == 1:
        users.get_or_create(id=n, defaults=user(n, **changes))
    elif kind == 2:
        users.save(users.get(n).model_copy(update=changes))
    else:
        users.patch(n, **changes)


def write(path: str, release: str, seed: int, keys: int) -> None:
    """Write until the parent says that it is enough; tell how it went."""
    model: Any = RELEASES[release]
    # With a pause, so that they leave the builders the processor; longer where 21 indexes are built beside this.
    changing, pause = (residents.change, 0.02) if release == "kinds" else (change, 0.005)
    counts = {"written": 0, "refused": 0}
    rng = random.Random(seed)
    finished = False

    def finish(number: int, frame: Any) -> None:
        nonlocal finished
        finished = True

    signal.signal(signal.SIGTERM, finish)
    with Database(path, models=[model], durability="relaxed", busy_timeout=60) as db:
        print("ready", flush=True)
        while not finished:
            try:
                changing(db[model], rng, keys)
                counts["written"] += 1
            except (IntegrityError, StaleObjectError, model.DoesNotExist, RetriesExhaustedError):
                counts["refused"] += 1
            time.sleep(pause * rng.random())
    print(json.dumps(counts), flush=True)


def build(path: str, release: str, killed_after_s: str = "") -> None:
    """Build everything; an interrupted build of another process is carried on.

    Args:
        path, release: what is built.
        killed_after_s: the system ends this process wherever it is after so many seconds of work; processor time, so
            that a machine that is slow kills no later than one that is fast.
    """
    model = RELEASES[release]
    with Database(path, models=[model], durability="relaxed", busy_timeout=60) as db:
        print("ready", flush=True)
        if killed_after_s:
            signal.setitimer(signal.ITIMER_PROF, float(killed_after_s))
        reports = db.build_indexes()
    print(json.dumps([[report.index, report.state, len(report.violations)] for report in reports]), flush=True)


def build_in_full(path: str, release: str, killed_after_s: str = "") -> None:
    """The same as releases of this library did before batches were made at once: each record is compiled."""
    switches.fast_kinds = False
    build(path, release, killed_after_s)


def write_as_old_code(path: str, seed: int, keys: int) -> None:
    """Release 1: writes until it may not any more, and reads on; tells how often it did either."""
    rng = random.Random(seed)
    written = reads = 0
    with Database(path, models=[First], durability="relaxed", busy_timeout=60) as db:
        print("ready", flush=True)
        while True:
            try:
                change(db[First], rng, keys)
                written += 1
            except SchemaMismatchError:
                break
            except (IntegrityError, StaleObjectError, First.DoesNotExist, RetriesExhaustedError):
                continue
        for n in range(50):
            reads += db[First].get_or_none(n) is not None
            reads += db[First].filter(color="red").count() > 0
    print(json.dumps({"written": written, "reads": reads}), flush=True)


def touch(path: str, seed: int) -> None:
    """The new release writes beside its own migration: it adds visits, and tells how many."""
    rng = random.Random(seed)
    finished = False

    def finish(number: int, frame: Any) -> None:
        nonlocal finished
        finished = True

    signal.signal(signal.SIGTERM, finish)
    added = 0

    def once_more(found: Touched) -> None:
        found.visits += 1
        found.city = rng.choice(["rome", "oslo"])

    with Database(path, models=[Touched], durability="relaxed", busy_timeout=60) as db:
        print("ready", flush=True)
        while not finished:
            try:
                db[Touched].mutate(rng.randrange(800), once_more)
                added += 1
            except (RetriesExhaustedError, SchemaMismatchError):  # it may write once the change has begun
                continue
            finally:
                time.sleep(0.005)
    print(json.dumps({"added": added}), flush=True)


ROLES: dict[str, Callable[..., None]] = {
    "write": lambda path, release, seed, keys: write(path, release, int(seed), int(keys)),
    "build": build,
    "full": build_in_full,
    "touch": lambda path, seed: touch(path, int(seed)),
    "old": lambda path, seed, keys: write_as_old_code(path, int(seed), int(keys)),
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
