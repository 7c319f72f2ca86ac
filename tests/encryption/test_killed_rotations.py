"""A rotation that is killed again and again, beside writers and readers that were started before it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvmodels import Database
from tests.encryption.models import RING, Patient, patient
from tests.encryption.test_rotation import key_ids, listed
from tests.source_tree import REPOSITORY

_ROTATE = """
import sys
from kvmodels import Database
from tests.encryption.models import RING, Patient
with Database(sys.argv[1], models=[Patient], keys=RING) as db:
    report = db.rotate(Patient, to=2, throttle=float(sys.argv[2]) or None)
    sys.exit(0 if report.complete else 1)
"""

_WRITE = """
import sys
from kvmodels import Database
from tests.encryption.models import RING, Patient
with Database(sys.argv[1], models=[Patient], keys=RING, busy_timeout=60) as db:
    print("ready", flush=True)
    number = 0
    while True:
        number = (number + 7) % int(sys.argv[2])
        found = db[Patient].get(number)
        assert found.insurance == f"I-{number}"
        db[Patient].patch(number, name=f"beside {found.bed}", bed=found.bed + 1)
"""


def started(program: str, *words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, words)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("records", "kills"), [(300, 2), pytest.param(20_000, 8, marks=pytest.mark.soak)], ids=["some", "many"]
)
def test_no_value_of_the_old_key_is_left(tmp_path: Path, records: int, kills: int):
    url = f"sqlite:///{tmp_path / 'killed.db'}"
    with Database(url, models=[Patient], keys=RING, busy_timeout=60) as db:
        db[Patient].bulk_create([patient(number) for number in range(records)])
        db[Patient].filter(ward="a").update(name="Planted old")
        writer = started(_WRITE, url, records)
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            for number in range(kills):
                rotation = started(_ROTATE, url, records / kills)
                # Each life of the process is longer than the last one, so that the kills meet all parts of the work.
                with pytest.raises(subprocess.TimeoutExpired):
                    rotation.communicate(timeout=1 + number * random.Random(number).random())
                rotation.send_signal(signal.SIGKILL)
                rotation.communicate()
            last = started(_ROTATE, url, 0)
            last.communicate()
            assert last.returncode == 0
            assert writer.poll() is None, "a writer that was started before still writes"
        finally:
            writer.kill()
            writer.communicate()
        assert key_ids(db) == {2}
        assert listed(db)["current"] == 2
        assert db.check().ok
