"""Words of texts and of queries: how both become the terms of an index, and which terms a query asks for."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "stemming")
