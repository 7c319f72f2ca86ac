"""Refusal of types whose valid values may be invalid when a stored record is read.

A record is validated again at every read. For example, pydantic accepts a ``FutureDatetime`` when it is written and
refuses it a day later, or a ``FilePath`` after its file was removed; then the record could not be read. So types whose
validation depends on the clock or the disk are refused. A ``Json[int]`` takes text and gives an int, which it does not
take; so types that decode their input are refused too.

Rules of this module: types are searched in the schema that pydantic compiled, not in the annotations, because it is the
same for all spellings of a type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from pydantic.types import Base64Encoder, Base64UrlEncoder, EncodedBytes, EncodedStr, PathType

from kvmodels.errors import ModelDefinitionError


class _Finding(NamedTuple):
    """A type that cannot be stored: its name, why not, the type to declare instead, and whether it decodes input."""

    name: str
    because: str
    instead: str
    decodes: bool = False


_NOT_SCHEMAS: Final = frozenset(
    {"cls", "config", "custom_error_context", "default", "expected", "members", "metadata", "serialization"}
)
"""Keys of a core schema that hold values or descriptions, which are not validated."""

_PATH_TYPES: Final[Mapping[Any, str]] = {
    PathType.validate_file: "FilePath",
    PathType.validate_directory: "DirectoryPath",
    PathType.validate_new: "NewPath",
    PathType.validate_socket: "SocketPath",
}

_ENCODERS: Final[Mapping[Any, str]] = {Base64Encoder: "Base64", Base64UrlEncoder: "Base64Url"}


def require_lasting_types(model: type[Any]) -> None:
    """Refuse a model with a type whose stored values could be invalid in a later read.

    Raises:
        ModelDefinitionError: the model has such a type.
    """
    core: Any = model.__pydantic_core_schema__
    definitions = {one["ref"]: one for one in core.get("definitions", ()) if "ref" in one}
    for field, schema in [*_field_schemas(core, definitions), (None, core)]:
        for found in _findings(schema, definitions):
            hint = (
                f"{found.name} {found.because}. Declare {found.instead} here, and use {found.name} in the model that "
                "validates the input. Records that are stored stay as they are."
            )
            if found.decodes:
                raise ModelDefinitionError(
                    "a type decodes its input, so that it does not accept its own values when a record is read",
                    model=model.__name__,
                    field=field,
                    option=found.name,
                    hint=hint,
                )
            raise ModelDefinitionError(
                "the validation of a type depends on more than the value, so a stored record could become unreadable",
                model=model.__name__,
                field=field,
                option=found.name,
                hint=hint,
            )


def _field_schemas(core: Any, definitions: Mapping[str, Any]) -> Iterable[tuple[str | None, Any]]:
    """Return the names of the fields in the compiled schema of a model, and their schemas."""
    while core is not None and core.get("type") != "model-fields":
        core = definitions.get(core["schema_ref"]) if "schema_ref" in core else core.get("schema")
    return () if core is None else core["fields"].items()


def _findings(schema: Any, definitions: Mapping[Any, Any]) -> Iterator[_Finding]:
    """Yield each type that cannot be stored."""
    seen = set[str | None]()
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (list, tuple)):
            waiting += cast("list[Any]", node)
        elif isinstance(node, dict):
            node = cast("dict[str, Any]", node)
            is_schema = isinstance(node.get("type"), str)  # otherwise a dict of schemas by name, such as the fields
            if is_schema:
                yield from _finding(node)
                reference = node.get("schema_ref")
                if reference not in seen:
                    seen.add(reference)
                    waiting.append(definitions.get(reference))
            waiting += [part for key, part in node.items() if not (is_schema and key in _NOT_SCHEMAS)]


def _finding(node: Mapping[str, Any]) -> Iterator[_Finding]:
    if "now_op" in node:
        yield _Finding(f"{node['now_op']}_{node['type']}".title().replace("_", ""), "looks at the clock", node["type"])
    if node["type"] == "json":
        yield _Finding("Json", "parses text", "the type of the parsed value, such as JsonValue,", decodes=True)
    function: Any = node.get("function")
    if not isinstance(function, dict):
        return
    function = cast("dict[str, Any]", function).get("function")
    encoded: Any = getattr(function, "__self__", None)
    if function in _PATH_TYPES:
        yield _Finding(_PATH_TYPES[function], "looks at the disk", "Path")
    elif getattr(function, "__name__", "") == "import_string" and function.__module__.startswith("pydantic."):
        yield _Finding("ImportString", "looks at the installed modules", "str")
    elif isinstance(encoded, (EncodedBytes, EncodedStr)):
        kind = "str" if isinstance(encoded, EncodedStr) else "bytes"
        prefix = _ENCODERS.get(encoded.encoder, "Encoded")
        yield _Finding(f"{prefix}{kind.title()}", "decodes its input", f"{kind} for the decoded value", decodes=True)
