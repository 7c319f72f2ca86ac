"""Engines: ordered stores of bytes, and all that is specific to one.

Rules of this module: an engine is loaded when a URL first names it, and what makes backups with the first backup, so
that nobody pays for the others.
"""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "contract")
