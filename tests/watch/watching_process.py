"""Two programs for the tests with processes: one writes until it is killed, one follows and says what it was told."""

from __future__ import annotations

import itertools
import random
import sys

from kvmodels.api._sync.kv import open_kv

PREFIX = ("p",)
KEYS = 8


def write(path: str, seed: str) -> None:
    """Write numbers that rise under random keys, for ever."""
    chance = random.Random(seed)
    with open_kv(path, durability="relaxed", busy_timeout=30) as kv:
        print("writing", flush=True)
        for number in itertools.count():
            operation = kv.atomic()
            for _ in range(chance.randrange(1, 4)):
                key = (*PREFIX, chance.randrange(KEYS))
                if chance.random() < 0.25:
                    operation.delete(key)
                else:
                    operation.set(key, f"{seed}-{number}", expire_in=chance.choice([None, None, 0.02]))
            operation.commit()


def follow(path: str, since: str) -> None:
    """Print each delivery on a line: the position, then key, versionstamp and value of each entry."""
    with open_kv(path, poll_interval=0.01, busy_timeout=30) as kv:
        watch = kv.watch(prefix=PREFIX, since=since or None)
        for entries in watch:
            words = [f"{entry.key[-1]}={entry.versionstamp}={entry.value}" for entry in entries]
            print(watch.versionstamp, *words, "end", flush=True)


if __name__ == "__main__":
    {"write": write, "follow": follow}[sys.argv[1]](sys.argv[2], sys.argv[3])
