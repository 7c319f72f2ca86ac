r"""Values of records as text for a page: shortened, and with invisible characters made visible.

Rules of this module: the templates escape HTML; nothing here returns markup.
"""

from __future__ import annotations

import json
from datetime import date, datetime, time
from enum import Enum
from typing import Any, Final

from pydantic import TypeAdapter

from kvmodels._support.visible import is_hidden, visible, visible_json
from kvmodels.codecs.typed_json import key_from_json, key_to_json, parse_line, value_to_json
from kvmodels.core.keys import Key

CELL: Final = 80
"""The most characters of a value in a cell of a table."""

_ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any)


def is_plain(text: str) -> bool:
    """Return whether a form sends a text back unchanged: line feeds and tabs are its only control characters."""
    return text.isprintable() or not any(is_hidden(one) for one in text if one not in "\n\t")


def shortened(text: str, length: int = CELL) -> str:
    """Return at most this many characters of a text, without line breaks.

    Examples:
        >>> shortened("a long text", 6)
        'a lon…'
    """
    start = " ".join(text[: length * 4].split()) if "\n" in text[: length * 4] else text[: length * 4]
    return start if len(start) <= length and len(text) <= length * 4 else f"{start[: length - 1]}…"


def value_text(value: Any) -> str:
    """Return a value of a record as text, as a form shows it.

    Examples:
        >>> value_text(True), value_text(b"x"), value_text(["a", 1]), value_text(None)
        ('true', '78', '["a", 1]', '')
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return value_text(value.value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    plain = _ANY.dump_python(value, mode="json", fallback=str)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def cell_text(value: Any) -> str:
    """Return a value for a cell of a table."""
    return visible(shortened(value_text(value)))


def key_line(key: Key) -> str:
    """Return a raw key as one line of JSON."""
    return json.dumps(key_to_json(key), ensure_ascii=False, separators=(",", ":"))


def key_of_line(line: str) -> Key:
    """Return the key for a line of JSON. Raises ValueError."""
    form = parse_line(line)
    if not isinstance(form, list):
        raise ValueError("a key is a JSON array of its parts")
    return key_from_json(form)


def stored_text(value: Any) -> str:
    """Return a raw value of the store as JSON, indented."""
    return visible_json(json.dumps(value_to_json(value), ensure_ascii=False, indent=2))
