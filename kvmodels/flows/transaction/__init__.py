"""Transactions: reads with an overlay of pending writes, and one commit."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "commit", "transaction")
