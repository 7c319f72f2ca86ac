"""A process that adds to a counter under a lock; some wait once while they hold it, to be stopped by their parent."""

from __future__ import annotations

import sys

from kvmodels import LockLostError, open_kv


def main(path: str, resource: str, number: str, rounds: str) -> None:
    done = refused = lost = 0
    with open_kv(path, durability="relaxed") as kv, open_kv(resource, durability="relaxed") as protected:

        def admit(token: int) -> int | None:
            """Return the content of the protected resource; None when a later holder was seen."""
            while True:
                seen = protected.get(("token",))
                if (seen.value or 0) > token:
                    return None
                operation = protected.atomic().check(seen).set(("token",), token)
                if operation.commit():
                    return protected.get(("count",)).value or 0

        def store(token: int, value: int) -> bool:
            while True:
                seen = protected.get(("token",))
                if seen.value > token:
                    return False
                if protected.atomic().check(seen).set(("token",), token).set(("count",), value).commit():
                    return True

        paused = False
        while done < int(rounds):
            try:
                with kv.lock("counter", ttl=1) as lock:
                    count = admit(lock.fencing_token)
                    if count is None:
                        refused += 1
                        continue
                    if done == 2 and int(number) % 3 == 0 and not paused:
                        paused = True
                        print("holding", flush=True)
                        sys.stdin.readline()  # the parent stops this process here
                    if store(lock.fencing_token, count + 1):
                        done += 1
                    else:
                        refused += 1
            except LockLostError:
                lost += 1
    print(done, refused, lost, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
