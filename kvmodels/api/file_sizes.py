"""The sizes of the files of a store, or of its tables on a server.

Rules of this module: a file that does not exist is left out; nothing is opened.
"""

from __future__ import annotations

import os
from contextlib import suppress

from kvmodels.engines import contract


def file_sizes(engine: contract.Engine) -> dict[str, int]:
    """Return the size in bytes of each file of a store by path, or of each table by name; empty in memory."""
    reader = engine.capabilities.size_reader
    sizes = {} if reader is None else reader.sizes()
    for path in engine.capabilities.files:
        with suppress(FileNotFoundError):
            sizes[path] = os.path.getsize(path)
    return sizes
