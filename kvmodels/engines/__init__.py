"""Engines: ordered stores of bytes, and all that is specific to one.

Rules of this module: an engine is loaded when a URL first names it, and the code of backups with the first backup, so
that a program loads only what it uses.
"""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "contract")
