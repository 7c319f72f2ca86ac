"""A plugin for mypy: names of fields with an alias in constructors of models, and the annotation ``Vector[384]``.

mypy derives the constructor of a model from ``dataclass_transform``, which knows the alias of a field but not that its
name is allowed too. In the configuration, the plugin follows that of pydantic, which finds the settings of classes::

    [mypy]
    plugins = pydantic.mypy, kvmodels.ext.mypy

mypy takes a number in brackets for a type, and refuses it; the plugin says that ``Vector[384]`` is a ``Vector``.

Rules of this module: it only allows more, so that a program without it gets the same errors or more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mypy.nodes import CallExpr, TypeInfo
from mypy.plugin import AnalyzeTypeContext, FunctionSigContext, Plugin
from mypy.types import FunctionLike, Type

_MODEL: Final = "kvmodels.schema.compile.model.KvModel"
_VECTOR: Final = "kvmodels.schema.vectors.vector.Vector"
_SETTINGS: Final = "pydantic-mypy-metadata"
_BY_NAME: Final = ("populate_by_name", "validate_by_name")


def plugin(_version: str) -> type[Plugin]:
    """Return the plugin; mypy calls this function with its version."""
    return _NamesOfFields


class _NamesOfFields(Plugin):
    """Accepts the names of fields that have an alias, and the lengths of vectors."""

    def get_type_analyze_hook(self, fullname: str) -> Callable[[AnalyzeTypeContext], Type] | None:
        """Return the hook for the annotation of a vector; None for all other types."""
        return _vector if fullname == _VECTOR else None

    def get_function_signature_hook(self, fullname: str) -> Callable[[FunctionSigContext], FunctionLike] | None:
        """Return the hook for calls of a model class that takes names; None for all other calls."""
        found = self.lookup_fully_qualified(fullname)
        info = found.node if found is not None else None
        if not isinstance(info, TypeInfo) or not info.has_base(_MODEL) or not _takes_names(info):
            return None
        names = {one["alias"]: one["name"] for one in _fields(info) if one.get("alias")}
        return lambda context: _renamed(context, names)


def _vector(context: AnalyzeTypeContext) -> Type:
    """Return the type of a vector, whatever its length."""
    found: Type = context.api.named_type(_VECTOR, [])
    return found


def _takes_names(info: TypeInfo) -> bool:
    settings: dict[str, Any] = info.metadata.get(_SETTINGS, {}).get("config", {})
    return any(settings.get(name) for name in _BY_NAME)


def _fields(info: TypeInfo) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = info.metadata.get("dataclass", {}).get("attributes", [])
    return fields


def _renamed(context: FunctionSigContext, names: dict[str, str]) -> FunctionLike:
    """Return the signature with the name of each field that this call gives by its name."""
    signature: Any = context.default_signature
    given = set(context.context.arg_names) if isinstance(context.context, CallExpr) else set[str | None]()
    renamed = [
        names[name] if name in names and name not in given and names[name] in given else name
        for name in signature.arg_names
    ]
    changed: FunctionLike = signature.copy_modified(arg_names=renamed)
    return changed
