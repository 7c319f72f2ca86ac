"""Bulk writes on a file whose process is killed by SIGKILL again and again, and gone on for by the next one."""

from __future__ import annotations

import random
import time

from kvmodels import Count, Database, Sum
from tests.bulk.jobs import JOBS, state
from tests.bulk.models import Thing, filled, memory
from tests.engines.processes import start

COUNT = 300
KILLS = 20
NAMES = ("update, walked", "update, collected", "delete, collected")

WORKING = """
    import sys
    from kvmodels import Database
    from tests.bulk.jobs import JOBS
    from tests.bulk.models import Thing
    with Database(sys.argv[1], models=[Thing], durability="relaxed") as db:
        for name in sys.argv[2:]:
            JOBS[name].run(db, name, batch_size=3, progress=lambda _: print("batch", flush=True))
    print("done", flush=True)
"""


def test_bulk_writes_that_are_killed_twenty_times_write_each_record_once(tmp_path):
    path = tmp_path / "things.db"
    filled(Database(path, models=[Thing]), COUNT).close()
    twin = memory(COUNT)
    for name in NAMES:
        JOBS[name].run(twin, None)
    expected = state(twin)
    chance, seen = random.Random(20), 0
    for _ in range(KILLS):
        process = start(WORKING, path, *NAMES)
        assert process.stdout is not None
        wanted = chance.randrange(1, 12)
        for line in process.stdout:
            seen += 1
            wanted -= 1
            assert line == "batch\n", "done before it was killed so often: seed 20"
            if not wanted:
                break
        time.sleep(chance.random() * 0.002)
        process.kill()
        process.communicate()
    said, errors = start(WORKING, path, *NAMES).communicate(timeout=120)
    assert said.endswith("done\n"), errors
    assert seen >= KILLS
    with Database(path, models=[Thing]) as db:
        assert state(db) == expected
        assert db.check().ok
        totals = db[Thing].group_by("kind").aggregate(Count(), Sum("n"))
        for row in totals:
            values = [thing.n for thing in db[Thing] if thing.kind == row["kind"]]
            assert (row["count"], row["n__sum"]) == (len(values), sum(values))
        for name in NAMES:
            assert JOBS[name].run(db, name, batch_size=50).resumed
            assert db.forget_bulk(name)
        assert state(db) == expected
        assert not list(db.kv.list(prefix=("__kvmodels__", "bulk")))
