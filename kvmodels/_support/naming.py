"""Names and values as users see them: the public path of a class, and shortened values in messages.

Rules of this module: a module that holds public names ends with a call of ``show_public_path`` for all of them, so that
a name is shown alike whether or not the program has asked ``kvmodels`` for it. ``short_repr`` never fails, or the
message of one error would be another error.
"""

from __future__ import annotations

import sys
from typing import Any, cast


def show_public_path(*things: Any) -> None:
    """Let tracebacks, reprs and pickles name ``kvmodels``, as httpx does; the modules inside may then move.

    Examples:
        >>> from kvmodels.errors import DoesNotExist
        >>> DoesNotExist.__module__
        'kvmodels'
    """
    for thing in things:
        if isinstance(thing, type):
            _evaluate_annotations(thing)
        thing.__module__ = "kvmodels"


def _evaluate_annotations(cls: type[Any]) -> None:
    """Replace the texts that annotate the fields of a dataclass or named tuple by types.

    Pydantic, FastAPI and ``typing.get_type_hints`` evaluate such texts in the module that a class names, and
    ``kvmodels`` has not the names that the text uses. A method of each class that pydantic calls was rejected: for a
    generic class such as ``Page[User]`` pydantic asks no method.
    """
    names = vars(sys.modules[cls.__module__])
    fields: dict[str, Any] = cls.__dict__.get("__dataclass_fields__", {})
    if not fields and not hasattr(cls, "_fields"):
        return
    annotations = cls.__annotations__
    for name, annotation in annotations.items():
        text = getattr(annotation, "__forward_arg__", annotation)  # a named tuple wraps its texts
        if isinstance(text, str):
            annotations[name] = eval(text, names)  # noqa: S307 - the text is an annotation of this package
        if name in fields:
            fields[name].type = annotations[name]


LONGEST_SHOWN = 200
"""Characters of one value in a message."""


def short_repr(value: object) -> str:
    """Return the ``repr`` of a value in at most 200 characters, or a description if the value has no ``repr``.

    Examples:
        >>> short_repr("text"), short_repr(10**5000)
        ("'text'", '<int of 16610 bits>')
        >>> short_repr((10**5000,))
        '<tuple, whose repr() raises ValueError>'
        >>> short_repr(("age" * 20,) * 99).replace("age", "")
        "('', '' and 97 more)"
    """
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a class may raise anything, and Python writes out no huge int
        if isinstance(value, int):
            return f"<{type(value).__name__} of {value.bit_length()} bits>"
        return f"<{type(value).__name__}, whose repr() raises {type(error).__name__}>"
    if len(text) <= LONGEST_SHOWN:
        return text
    names = _first_names(cast("tuple[object, ...]", value)) if type(value) is tuple else None
    return names or f"{text[: LONGEST_SHOWN - 40]} ... {text[-30:]}"


def _first_names(values: tuple[object, ...]) -> str | None:
    """Return the first of many texts and the number of the others; None for other values and long texts."""
    shown, room = list[str](), LONGEST_SHOWN - 40
    for value in values:
        if type(value) is not str:
            return None
        room -= len(repr(value)) + 2
        if room >= 0:
            shown.append(repr(value))
        else:
            return f"({', '.join(shown)} and {len(values) - len(shown)} more)" if shown else None
    return None


def key_argument(values: tuple[Any, ...]) -> str:
    """Return a primary key as it is written in a call: its value, or a tuple of several.

    Examples:
        >>> key_argument((4,)), key_argument(("ada", 4))
        ('4', "('ada', 4)")
    """
    return short_repr(values[0] if len(values) == 1 else values)


def step_text(step: object) -> str:
    """Return one step of the path that an error names, a key or the index of an element, as text."""
    return f".{step}" if type(step) is str and step.isidentifier() else f"[{step!r}]"
