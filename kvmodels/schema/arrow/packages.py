"""The packages that make tables and data frames: pyarrow, pandas and polars.

Rules of this module: nothing is loaded before it is used, and a missing package is an UnsupportedError that names the
line to install it. pyarrow and pandas have no types, so all of them are ``Any`` to type checkers.
"""

from __future__ import annotations

from typing import Any, Final

from kvmodels._support.lazy_modules import optional_module
from kvmodels.errors import UnsupportedError


def _missing(package: str) -> UnsupportedError:
    wanted = "'kvmodels[arrow]'" if package == "pyarrow" else package
    return UnsupportedError(
        "tables and data frames need a package that is not installed",
        reason=package,
        hint=f"Install it: pip install {wanted}. Without it, use values().to_list().",
    )


arrow: Final[Any] = optional_module("pyarrow", _missing)
ipc: Final[Any] = optional_module("pyarrow.ipc", _missing)
parquet: Final[Any] = optional_module("pyarrow.parquet", _missing)
pandas: Final[Any] = optional_module("pandas", _missing)
polars: Final[Any] = optional_module("polars", _missing)
