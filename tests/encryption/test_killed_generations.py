"""A blind index that moves to another key by a process that is killed again and again, beside a writer."""

from __future__ import annotations

import subprocess
from itertools import count
from pathlib import Path

import pytest

from kvmodels import Database, SchemaProgress, UniqueViolationError
from tests.encryption.models import RING
from tests.encryption.test_index_generations import BOTH, DECLARED, ONE, ask, filled, guest, key_ids, opened
from tests.encryption.test_killed_rotations import started

_NUMBERS = count()

_APPLY = """
import sys
from tests.encryption.test_index_generations import BOTH, opened
with opened(sys.argv[1], BOTH) as db:
    sys.exit(0 if db.apply(throttle=float(sys.argv[2]) or None).complete else 1)
"""

_WRITE = """
import sys
from kvmodels import Database, UniqueViolationError
from tests.encryption.models import RING
from tests.encryption.test_index_generations import BOTH, guest
with Database(sys.argv[1], models=[BOTH], keys=RING, busy_timeout=60) as db:
    guests = db[BOTH]
    print("ready", flush=True)
    number = 24
    while True:
        number = 24 + (number + 7) % int(sys.argv[2])
        if guests.get_or_none(number) is None:
            guests.insert(guest(BOTH, number))
        else:
            guests.patch(number, passport=f"Q-{number}", city=None)
            assert guests.get(passport=f"q-{number}").id == number
            guests.remove(number)
        try:
            guests.insert(guest(BOTH, 10_000, passport=f"p-{number % 24}", room="other"))
        except UniqueViolationError:
            continue
        sys.exit("a value was taken twice")
"""


def test_both_indexes_are_whole_after_a_build_that_was_killed(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'killed.db'}"
    with Database(url, models=[ONE], keys=RING) as first:
        first[ONE].bulk_create([guest(ONE, number) for number in range(300)])
    with Database(url, models=[BOTH], keys=RING, busy_timeout=60) as db:
        writer = started(_WRITE, url, 276)
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            for number in range(2):
                build = started(_APPLY, url, 150)
                with pytest.raises(subprocess.TimeoutExpired):
                    build.communicate(timeout=1 + number / 2)
                build.kill()
                build.communicate()
                ask(db, BOTH)
            last = started(_APPLY, url, 0)
            last.communicate()
            assert last.returncode == 0
            ask(db, BOTH)
            assert writer.poll() is None, "a writer that was started before still writes"
        finally:
            writer.kill()
            writer.communicate()
        assert db.plan().is_current
        assert db.check().ok
        assert {key_ids(db, number) for number in range(24)} == {frozenset({1, 2})}


@pytest.mark.parametrize("stop", [0, 1, 4])
def test_an_interrupted_build_is_resumed(stop: int):
    url = f"memory://interrupted_{next(_NUMBERS)}"
    steps = count()

    def interrupted(progress: SchemaProgress) -> None:
        if next(steps) == stop:
            raise KeyboardInterrupt

    with filled(url, 130), opened(url, BOTH) as second, opened(url, BOTH) as other:
        with pytest.raises(KeyboardInterrupt):
            second.apply(progress=interrupted)
        ask(other, BOTH)
        other[BOTH].insert(guest(BOTH, 200))
        with pytest.raises(UniqueViolationError):
            other[BOTH].insert(guest(BOTH, 201, passport="p-129", room="other"))
        other[BOTH].remove(3)
        other[BOTH].insert(guest(BOTH, 3))
        assert other.apply().complete
        ask(second, BOTH)
        assert second.check().ok
        for name in DECLARED:
            second.drop_index(BOTH, name)
        ask(other, BOTH)
        assert other.check().ok
