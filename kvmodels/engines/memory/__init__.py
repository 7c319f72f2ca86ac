"""The memory engine."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

_find_module = deferred_modules(__name__, "engine")


def __getattr__(name: str) -> object:
    found = _find_module("engine")
    return getattr(found, name) if name == "MemoryEngine" else _find_module(name)
