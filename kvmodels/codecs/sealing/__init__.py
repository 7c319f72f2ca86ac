"""Encrypted values: the keys of a program, and the bytes that documents hold in place of plain values."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "cipher")
