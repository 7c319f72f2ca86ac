"""The sizes of the files of a store.

Rules of this module: a file that does not exist is left out; nothing is opened.
"""

from __future__ import annotations

import os
from contextlib import suppress

from kvmodels.engines import contract


def file_sizes(engine: contract.Engine) -> dict[str, int]:
    """Return the size in bytes of each file of a store by path; empty for a store in memory or on a server."""
    sizes: dict[str, int] = {}
    for path in engine.capabilities.files:
        with suppress(FileNotFoundError):
            sizes[path] = os.path.getsize(path)
    return sizes
