"""The formats of dumps, by name.

Rules of this module: names and checks; ``kvmodels.flows.transfer.whole_store`` has the flows of a format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.arguments import require_callable

DumpFormat = Literal["kvmodels", "deno"]
"""``"kvmodels"`` keeps everything; ``"deno"`` is that of Deno's package ``@deno/kv-utils``."""


Progress = Callable[[int], object] | None
"""The function that is called with the number of keys after each batch."""


def require_dump_options(format: object, progress: object) -> None:
    """Refuse an unknown format, and a progress function that is none. Raises InvalidArgumentError."""
    if format not in get_args(DumpFormat):
        raise InvalidArgumentError(
            "an unknown format of dumps",
            argument="format",
            value=format,
            expected=get_args(DumpFormat),
            hint='Give "kvmodels" or "deno".',
        )
    if progress is not None:
        require_callable("progress", progress, "Give True, or a function that takes the number of keys so far.")
