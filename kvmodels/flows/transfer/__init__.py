"""Dumps of some models and of tenants, and loads into a store that is in use."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "dump", "dumped_lines", "load", "whole_store")
