"""Queries: their description, planning and explanation; pure.

Rules of this module: code for aggregates and other result forms is loaded at its first use.
"""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "aggregates", "plans", "projection")
