"""Shows the constructors of dataclasses in the reference, whose decorator is our own.

Rules of this module: griffe knows dataclasses by the path of the decorator of the standard library, which stands in
``kvmodels._support.slotted_dataclass`` for everybody who reads types.
"""

from __future__ import annotations

from typing import Any

from griffe import Alias, Class, Extension, Module

OURS = "kvmodels._support.slotted_dataclass.dataclass"


class ShowDataclasses(Extension):
    """Follows the name to the standard library."""

    def on_class_members(self, *, cls: Class, **_kwargs: Any) -> None:
        """Called for each class that was read."""
        if any(decorator.callable_path == OURS for decorator in cls.decorators):
            cls.labels.add("dataclass")

    def on_module_members(self, *, mod: Module, **_kwargs: Any) -> None:
        """Called for each module that was read, after its classes."""
        name = mod.members.get("dataclass")
        if isinstance(name, Alias) and name.target_path == OURS:
            name.target_path = "dataclasses.dataclass"
