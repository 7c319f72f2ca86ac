"""One client process of the replay: ``python -m tests.contract.replay_process URL OPTIONS SEED OPERATIONS THREADS``.

Waits for a line on its standard input, so that all processes begin together, and writes its journals, pickled, to
its standard output.
"""

from __future__ import annotations

import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

from kvmodels.engines.url import open_engine
from tests.contract.replay import run_client


def main(url: str, options: str, seed: int, operations: int, threads: int) -> None:
    engine = open_engine(url, durability="relaxed", busy_timeout=60, **json.loads(options))
    sys.stdin.readline()
    with ThreadPoolExecutor(threads) as pool:
        clients = [pool.submit(run_client, engine, seed * 1_000 + n, operations) for n in range(threads)]
        journals = [client.result() for client in clients]
    engine.close()
    sys.stdout.buffer.write(pickle.dumps(journals))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
