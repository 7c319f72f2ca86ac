"""Flows: what the verbs do, as generators that yield requests; nothing here does I/O or knows an engine.

Rules of this module: these parts are loaded when they are first used, because no program uses all of them; each costs
half a millisecond to three, with what it alone needs.
"""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "arguments", "effects", "signals")
