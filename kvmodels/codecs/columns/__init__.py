"""Column codecs: conversion of one indexed value to a key part that sorts correctly."""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "registry")
