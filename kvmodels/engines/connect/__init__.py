"""KV Connect, the protocol between Deno KV and its servers: its messages, and the engine that is a client of it."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "engine")
