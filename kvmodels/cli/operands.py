"""Keys and values on the command line and in its output.

A word is a value in JSON if it is valid JSON, and text otherwise: ``7`` is a number, ``true`` a bool, ``ada`` text and
``"7"`` text too. Words that begin like JSON (with ``[``, ``{`` or ``"``) must be valid. Types that JSON lacks are
objects with one tag, as in dumps: ``{"$bytes": "AAE="}``; see ``kvmodels/codecs/typed_json.py``.

A key is one word for each part, or a single word that is a JSON array of all parts. Output has the second form, so each
printed key can be given back.

Rules of this module: a malformed word raises CommandError; a word that begins like JSON never becomes text silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvmodels.cli.failures import CommandError
from kvmodels.cli.output import json_text
from kvmodels.codecs.typed_json import key_from_json, key_to_json, parse_line, value_from_json, value_to_json
from kvmodels.core.keys import Key

_KEY_HINT = 'Give each part as a word, or the whole key as a JSON array: ["users", 7].'


def parse_key(words: Sequence[str]) -> Key:
    """Return the key for the words of a command line; no words are the empty key.

    Raises:
        CommandError: a word is malformed, or is not a part of a key.

    Examples:
        >>> parse_key(["users", "7"]), parse_key(['["users", 7]']), parse_key(['"7"'])
        (('users', 7), ('users', 7), ('7',))
    """
    forms = [_form_of(word) for word in words]
    if len(forms) == 1 and isinstance(forms[0], list):
        [forms] = forms
    else:
        forms = [form if form is not None else "null" for form in forms]  # no part of a key, so it is text
    try:
        return key_from_json(forms)
    except ValueError as error:
        raise CommandError(f"this is not a key: {error}", hint=_KEY_HINT) from error


def parse_value(word: str) -> Any:
    r"""Return the value for a word.

    Raises:
        CommandError: the word begins like JSON and is malformed.

    Examples:
        >>> parse_value("7"), parse_value("seven"), parse_value('{"$bytes": "AAE="}')
        (7, 'seven', b'\x00\x01')
    """
    try:
        return value_from_json(_form_of(word))
    except ValueError as error:
        raise CommandError(f"this is not a value: {error}", hint="Give JSON, or text that is not like JSON.") from error


def key_text(key: Key) -> str:
    """Return a key as one line of JSON, which ``parse_key`` reads.

    Examples:
        >>> key_text(("users", 7, b"x"))
        '["users",7,{"$bytes":"eA=="}]'
    """
    return json_text(key_to_json(key), separators=(",", ":"))


def value_text(value: object) -> str:
    """Return a value as one line of JSON, which ``parse_value`` reads."""
    return json_text(value_to_json(value))


def _form_of(word: str) -> Any:
    try:
        return parse_line(word)
    except ValueError as error:
        if word[:1] in ("[", "{", '"'):
            raise CommandError(f"malformed JSON: {word} ({error})", hint="Quote it for the shell: '...'.") from error
        return word
