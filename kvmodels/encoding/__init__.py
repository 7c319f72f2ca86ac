"""Encodings of values and of columns of keys.

Rules of this module: the codec of Deno's values is loaded when a store is opened with it; the package that it needs
takes longer to load than all of this one.
"""

from __future__ import annotations

from kvmodels.deferred import deferred_modules

__getattr__ = deferred_modules(__name__, "columns", "v8")
