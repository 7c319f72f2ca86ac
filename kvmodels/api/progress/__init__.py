"""Progress bars of long calls: ``progress=True``."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "bars", "measures", "notebook")
