"""The form of one record: its texts, what a user sent, the errors of its fields, and a comparison with the store.

A form that changes a record carries the versionstamp of the record and a digest of the text of each field. So only the
fields that the user has changed are written, and if somebody else has changed the record meanwhile, the form knows
which changes are whose.

Rules of this module: nothing is read or written here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import (
    AlreadyExistsError,
    ExclusionViolationError,
    InvalidValueError,
    KvModelsError,
    ReferenceViolationError,
    UniqueViolationError,
)
from kvmodels.ext.admin.forms.fields import FormField
from kvmodels.ext.admin.texts import is_plain
from kvmodels.schema.compile.model import KvModel

LONGEST: Final = 200_000
"""The most characters of a value that a form offers for editing."""

_TOO_LONG: Final = "This value is too long to be edited here."
_NO_TEXT: Final = "This value cannot be written as text."


@dataclass(slots=True)
class FieldState:
    """A field with its present text.

    Attributes:
        field: the field.
        text: the text in its input.
        is_none: whether the value is None.
        escaped: whether the text is a JSON string, because it has characters that a form cannot send.
        locked: why it cannot be edited; None if it can.
        errors: the messages about it.
        stored: after an overtaken form, the text in the store, if it differs from the one in the form.
        mine: after an overtaken form, whether the user changed it.
        is_new: whether the form creates a record, so that an empty input stands for the default.
    """

    field: FormField
    text: str = ""
    is_none: bool = False
    escaped: bool = False
    locked: str | None = None
    errors: tuple[str, ...] = ()
    stored: str | None = None
    mine: bool = False
    is_new: bool = False

    @property
    def digest(self) -> str:
        """A digest of the text."""
        shown = f"{int(self.is_none and self.field.offers_none)}{_with_line_feeds(self.text)}"
        return sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def states_of(fields: Iterable[FormField], record: BaseModel) -> dict[str, FieldState]:
    """Return the fields of a form with the values of a record."""
    return {leaf.name: _state(leaf, _reached(record, leaf.name)) for field in fields for leaf in field.leaves()}


def new_states(fields: Iterable[FormField], model: type[KvModel]) -> dict[str, FieldState]:
    """Return the fields of an empty form, with the defaults of the class."""
    found: dict[str, FieldState] = {}
    for field in fields:
        default = model.model_fields[field.name].default
        for leaf in field.leaves():
            value = PydanticUndefined if default is PydanticUndefined else _reached(default, leaf.name, skip=1)
            usable = value is not PydanticUndefined and not _is_marker(value)
            found[leaf.name] = _state(leaf, value) if usable else FieldState(leaf, locked=leaf.locked)
    return found


def sent_states(fields: Iterable[FormField], form: Mapping[str, str], *, is_new: bool = False) -> dict[str, FieldState]:
    """Return the fields with the texts that a user sent; a field that was not sent is locked."""
    found: dict[str, FieldState] = {}
    for field in fields:
        for leaf in field.leaves():
            name = f"f.{leaf.name}"
            missing = name not in form or leaf.locked is not None
            found[leaf.name] = FieldState(
                leaf,
                _with_line_feeds(form.get(name, "")),
                is_none=f"n.{leaf.name}" in form and leaf.offers_none and not form.get(name),
                escaped=f"j.{leaf.name}" in form,
                locked=leaf.locked or (_TOO_LONG if missing else None),
                is_new=is_new,
            )
    return found


def digests_of(states: Mapping[str, FieldState]) -> str:
    """Return the digests of all fields, for a hidden input."""
    return json.dumps({name: state.digest for name, state in states.items()})


def changed_names(states: Mapping[str, FieldState], digests: str) -> set[str]:
    """Return the names of the fields whose text differs from the digests of a form; all if these are damaged."""
    try:
        found: object = json.loads(digests)
    except (ValueError, RecursionError):
        found = {}
    known = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return {name for name, state in states.items() if state.locked is None and known.get(name) != state.digest}


def values_of(
    fields: Iterable[FormField], states: Mapping[str, FieldState], *, only: set[str] | None = None
) -> tuple[dict[str, Any], bool]:
    """Return the values of the fields, and whether all of them are valid; errors are noted at their fields.

    Args:
        fields: the fields of the form.
        states: their texts.
        only: names of the fields that count; a group counts if one of its fields does. None for all.
    """
    values: dict[str, Any] = {}
    valid = True
    for field in fields:
        if only is not None and only.isdisjoint(leaf.name for leaf in field.leaves()):
            continue
        value, fits = _value(field, states)
        valid = valid and fits
        if value is not PydanticUndefined:
            values[field.name] = value
    return values, valid


def note_error(states: Mapping[str, FieldState], error: Exception, keys: Iterable[str]) -> list[str]:
    """Attach an error to the fields that it concerns.

    Args:
        states: the fields of the form.
        error: raised by the library or by Pydantic.
        keys: the names of the fields of the primary key.

    Returns:
        The messages that concern no field of the form.
    """
    if isinstance(error, ValidationError):
        notes = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)]
    elif isinstance(error, UniqueViolationError):
        notes = [(name, f"Another record has this value: {error.existing_key!r}.") for name in error.fields]
    elif isinstance(error, ExclusionViolationError):
        span = f"{error.existing_start} to {'no end' if error.existing_end is None else error.existing_end}"
        text = f"It overlaps the interval of another record: {error.existing_key!r}, {span}."
        notes = [(name, text) for name in error.fields[-2:]]
    elif isinstance(error, AlreadyExistsError):
        notes = [(name, "A record with this primary key exists.") for name in keys]
    elif isinstance(error, ReferenceViolationError):
        notes = [(error.field, f"No record of {error.collection} has this primary key.")]
    elif isinstance(error, InvalidValueError) and error.field:
        notes = [(error.field, error.message)]
    else:
        return [str(error) if isinstance(error, KvModelsError) else f"{type(error).__name__}: {error}"]
    return [text for path, message in notes for text in _noted(states, path, message)]


def compare(states: Mapping[str, FieldState], stored: Mapping[str, FieldState], mine: set[str]) -> list[FieldState]:
    """Bring an overtaken form together with the record as it is stored now.

    A field that the user left alone takes the stored text. One that the user changed keeps the user's text.

    Returns:
        The fields that the user changed, each with the stored text if it differs.
    """
    found: list[FieldState] = []
    for name, state in states.items():
        now = stored[name]
        if name not in mine:
            state.text, state.is_none, state.escaped, state.locked = now.text, now.is_none, now.escaped, now.locked
            continue
        state.mine = True
        if state.digest != now.digest:
            state.stored = "None" if now.is_none else now.text
        found.append(state)
    return found


def _state(field: FormField, value: Any) -> FieldState:
    if value is None:
        return FieldState(field, is_none=True, locked=field.locked)
    try:
        text = field.text(value)
    except (ValueError, TypeError):
        return FieldState(field, locked=_NO_TEXT)
    if len(text) > LONGEST:
        return FieldState(field, locked=field.locked or _TOO_LONG)
    if is_plain(text):
        return FieldState(field, text, locked=field.locked)
    return FieldState(field, json.dumps(text), escaped=True, locked=field.locked)


def _value(field: FormField, states: Mapping[str, FieldState]) -> tuple[Any, bool]:
    """Return the value of a field, PydanticUndefined if it has none, and whether it is valid."""
    if field.kind == "group":
        parts = {child.label: _value(child, states) for child in field.children}
        given = {name: value for name, (value, _) in parts.items() if value is not PydanticUndefined}
        return given or PydanticUndefined, all(fits for _, fits in parts.values())
    state = states[field.name]
    if state.locked is not None:
        return PydanticUndefined, True
    if state.is_none:
        return None, True
    text = state.text
    if not text and not field.holds_text:
        return (None if field.nullable else PydanticUndefined), True
    if not text and state.is_new and not field.required:
        return PydanticUndefined, True
    try:
        return field.value(json.loads(text) if state.escaped else text), True
    except ValidationError as error:
        state.errors = tuple(_message(one) for one in error.errors(include_url=False))
    except (ValueError, TypeError, RecursionError) as error:
        state.errors = (str(error),)
    return PydanticUndefined, False


def _message(error: Any) -> str:
    place = ".".join(map(str, error["loc"]))
    return f"{place}: {error['msg']}" if place else str(error["msg"])


def _noted(states: Mapping[str, FieldState], path: str, message: str) -> list[str]:
    """Note a message at the field of a path, or the field that contains it; return it if there is none."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        state = states.get(".".join(parts[:length]))
        if state is not None:
            rest = ".".join(parts[length:])
            state.errors = (*state.errors, f"{rest}: {message}" if rest else message)
            return []
    return [f"{path}: {message}" if path else message]


def _reached(value: Any, path: str, *, skip: int = 0) -> Any:
    for name in path.split(".")[skip:]:
        value = getattr(value, name, None)
    return value


def _is_marker(value: Any) -> bool:
    """Return whether a default is a marker of the library, such as AUTO, in place of a value."""
    return type(value).__module__.startswith("kvmodels.schema.")


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n")


def note_missing(
    states: Mapping[str, FieldState], kind: type[KvModel], values: Mapping[str, Any], fields: Sequence[FormField]
) -> None:
    """Also note the fields that are missing, when others are invalid already."""
    for field in fields:
        state = states.get(field.name)
        missing = field.required and field.name not in values and state is not None
        if missing and state is not None and state.locked is None and not state.errors and kind.model_fields:
            state.errors = ("Field required",)
