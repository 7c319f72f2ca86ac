"""HTML of results in notebooks."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "cells", "html")
