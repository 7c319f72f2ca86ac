"""Change feeds: what has changed since a position that can be stored, for copies of records that are kept elsewhere."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "changed_since", "follow", "resumed_watch", "sink")
