"""Old paths of modules that users may import: each still works, with a DeprecationWarning that names the new path.

Rules of this module: a path is listed if a guide or a page of the reference showed it before the modules were moved
into packages; ``tests/test_import_paths.py`` imports every one. The table goes with the next release.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, cast

MOVED: Final = {
    "kvmodels.database_core": "kvmodels.api.core",
    "kvmodels.encoding": "kvmodels.codecs",
    "kvmodels.encoding.key_number": "kvmodels",
    "kvmodels.encoding.typed_json": "kvmodels.codecs.typed_json",
    "kvmodels.engines.base": "kvmodels.engines.contract",
    "kvmodels.engines.group_commit": "kvmodels.engines.shared.group_commit",
    "kvmodels.engines.opening": "kvmodels.engines.url",
    "kvmodels.operations": "kvmodels.core.operations",
    "kvmodels.signals": "kvmodels.flows.signals",
    "kvmodels.testing.virtual_time": "kvmodels.testing",
    "kvmodels.ulid": "kvmodels",
    "kvmodels.values": "kvmodels.core.values",
}
"""Old path to the module that has the same names now."""


class MovedModuleFinder:
    """Finds modules by their old paths, and loads them; it comes last, after all other finders."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that was moved, or None."""
        if name not in MOVED:
            return None
        is_package = any(other.startswith(f"{name}.") for other in MOVED)
        return ModuleSpec(name, cast("Any", MovedModuleFinder), is_package=is_package)

    @staticmethod
    def create_module(_spec: ModuleSpec) -> ModuleType | None:
        """Return None: the import system makes the module."""
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Let the attributes of a module be those of the new one, and warn the importer."""
        new = MOVED[module.__name__]
        warnings.warn(f"{module.__name__} has moved: import from {new}", DeprecationWarning, stacklevel=2)
        vars(module)["__getattr__"] = partial(getattr, import_module(new))


def find_moved_modules() -> None:
    """Let old paths be imported from now on; a second call does nothing."""
    if not any(finder is MovedModuleFinder for finder in sys.meta_path):
        sys.meta_path.append(MovedModuleFinder)
