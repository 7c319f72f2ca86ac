"""One process of a history: ``python -m tests.postgres.history_process URL FOLDER KIND NUMBER SEED``."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import cast

from tests.postgres.histories import Client, Kind


def main(url: str, folder: str, kind: str, number: str, seed: str) -> None:
    """Do what its kind says until the history ends."""
    with closing(Client(url, Path(folder), cast("Kind", kind), int(number), int(seed))) as client:
        client.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
