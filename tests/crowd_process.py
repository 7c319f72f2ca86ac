"""One writer of a crowd in a process of its own: ``python -m tests.crowd_process URL SEED NUMBER OPTIONS``.

It writes until its standard input is closed. After each round it prints how many of its writes were acknowledged, and
in the end its ledger, pickled.
"""

from __future__ import annotations

import json
import pickle
import select
import sys

from tests.crowd import LAST, Writer, opened


def main(url: str, seed: str, number: str, options: str) -> None:
    """Write until the crowd finishes."""
    with opened(url, **json.loads(options)) as db:
        writer = Writer(db, int(seed), int(number))
        while not select.select([sys.stdin], [], [], 0)[0]:
            writer.write()
            sys.stdout.buffer.write(b"%d\n" % writer.ledger.acknowledged)
            sys.stdout.buffer.flush()
        sys.stdout.buffer.write(LAST + pickle.dumps(writer.ledger))


if __name__ == "__main__":
    main(*sys.argv[1:])
