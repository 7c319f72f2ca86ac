"""The formats of dumps, by name.

Rules of this module: a format is a pair of flows, which are loaded when a dump or a load uses them.
"""

from __future__ import annotations

from typing import Literal, get_args

from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.kv import deno_dump, dump
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.limits import Limits

DumpFormat = Literal["kvmodels", "deno"]
"""``"kvmodels"`` keeps everything; ``"deno"`` is that of Deno's package ``@deno/kv-utils``."""


def require_dump_format(format: object) -> None:
    """Refuse an unknown format. Raises InvalidArgumentError."""
    if format not in get_args(DumpFormat):
        raise InvalidArgumentError(
            "an unknown format of dumps",
            argument="format",
            value=format,
            expected=get_args(DumpFormat),
            hint='Give "kvmodels" or "deno".',
        )


def dumping_in(format: DumpFormat, form: StoreFormat) -> dump.Dumping:
    """Return a new dump in a format. Raises InvalidArgumentError."""
    require_dump_format(format)
    return deno_dump.DenoDumping(form) if format == "deno" else dump.Dumping(form)


def loading_in(format: DumpFormat, form: StoreFormat, limits: Limits, token: str) -> dump.Loading:
    """Return a new load of a format. Raises InvalidArgumentError."""
    require_dump_format(format)
    return (deno_dump.DenoLoading if format == "deno" else dump.Loading)(form, limits, token)
