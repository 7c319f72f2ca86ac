"""Finds the facades by name: every class AsyncX with its synchronous twin X, wherever they are defined."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import kvmodels

INTERNAL = {"Runner", "Session", "Transactions"}
"""Pairs of classes that no user gets: they run flows, a transaction at the engine, the transactions of a handle."""


def package_modules() -> list[ModuleType]:
    """Every module of the package, imported."""
    found = pkgutil.walk_packages(kvmodels.__path__, "kvmodels.")
    return [kvmodels, *(importlib.import_module(module.name) for module in found)]


def package_classes() -> dict[str, type]:
    """Public classes of the package by name, each from the module that defines it; not those of ``_compat``.

    The two ``_compat`` modules are no facades: they differ on purpose, and type checkers check their use.
    """
    classes: dict[str, type] = {}
    for module in package_modules():
        for name, value in vars(module).items():
            if name.startswith("_") or not inspect.isclass(value):
                continue
            if value.__module__.startswith("kvmodels") and not value.__module__.endswith("._compat"):
                classes[value.__name__] = value
    return classes


def facade_pairs() -> dict[str, tuple[type, type]]:
    """(X, AsyncX) by the name X; not the engine contract, whose two forms differ on purpose."""
    classes = {
        name: cls for name, cls in package_classes().items() if not cls.__module__.startswith("kvmodels.engines")
    }
    return {
        name.removeprefix("Async"): (classes[name.removeprefix("Async")], cls)
        for name, cls in sorted(classes.items())
        if name.startswith("Async") and name.removeprefix("Async") in classes.keys() - INTERNAL
    }


def facade_classes() -> dict[str, type]:
    """Both classes of every pair."""
    return {cls.__name__: cls for pair in facade_pairs().values() for cls in pair}


def facade_functions() -> dict[str, Callable[..., Any]]:
    """The exported functions of the package."""
    exported = {name: getattr(kvmodels, name) for name in kvmodels.__all__}
    return {name: value for name, value in exported.items() if inspect.isfunction(value)}


def public_methods(cls: type) -> dict[str, Callable[..., Any]]:
    """Methods that a user calls by name, inherited ones of the package included; properties left out."""
    methods: dict[str, Callable[..., Any]] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("kvmodels"):
            continue
        for name, value in vars(base).items():
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if not name.startswith("_") and inspect.isfunction(function):
                methods[name] = function
    return methods


def public_properties(cls: type) -> set[str]:
    """Names of the public properties, inherited ones included."""
    return {name for name, value in inspect.getmembers(cls) if isinstance(value, property) and not name.startswith("_")}
