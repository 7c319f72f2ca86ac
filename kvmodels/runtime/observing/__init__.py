"""Observing a store: the operations that its methods report, and the observers of the library."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "counters", "observation", "operation")
