"""Queries: what is asked for, how it is planned and explained; pure.

Rules of this module: what makes aggregates and other shapes of results is loaded when a program first asks for them.
"""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(
    __name__,
    "aggregates",
    "plans",
    "projection",
)
