"""The formats of dumps, by name.

Rules of this module: a format is a pair of flows, which are loaded when a dump or a load uses them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.arguments import require_callable
from kvmodels.flows.kv import deno_dump, dump
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.limits import Limits

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
        require_callable("progress", progress, "Give a function that takes the number of keys so far.")


def dumping_in(format: DumpFormat, form: StoreFormat, progress: Progress) -> dump.Dumping:
    """Return a new dump in a format. Raises InvalidArgumentError."""
    require_dump_options(format, progress)
    return deno_dump.DenoDumping(form) if format == "deno" else dump.Dumping(form)


def loading_in(format: DumpFormat, form: StoreFormat, limits: Limits, token: str, progress: Progress) -> dump.Loading:
    """Return a new load of a format. Raises InvalidArgumentError."""
    require_dump_options(format, progress)
    return (deno_dump.DenoLoading if format == "deno" else dump.Loading)(form, limits, token)
