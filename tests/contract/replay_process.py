"""One client process of the replay: ``python -m tests.contract.replay_process URL SEED OPERATIONS THREADS``.

Waits for a line on its standard input, so that all processes begin together, and writes its journals, pickled, to
its standard output.
"""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

from kvmodels.engines.url import open_engine
from tests.contract.replay import run_client


def main(url: str, seed: int, operations: int, threads: int) -> None:
    engine = open_engine(url, durability="relaxed", busy_timeout=60)
    sys.stdin.readline()
    with ThreadPoolExecutor(threads) as pool:
        clients = [pool.submit(run_client, engine, seed * 1_000 + n, operations) for n in range(threads)]
        journals = [client.result() for client in clients]
    engine.close()
    sys.stdout.buffer.write(pickle.dumps(journals))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
