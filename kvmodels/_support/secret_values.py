"""``SecretStr``, ``SecretBytes`` and ``Secret[T]`` in records that are printed, and in those that are read again.

Pydantic prints a mask in place of a secret, and reads the mask as a secret. So a record that was exported and inserted
again would have lost its secret without an error.

Rules of this module: formats for machines have the value, tables the mask, and a mask that is read is refused.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeGuard, cast

from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

MASK: Final = "**********"
"""The text that pydantic prints for every secret that is not empty."""

_AnySecret: TypeAlias = SecretStr | SecretBytes | Secret[Any]
_SECRETS: Final = (SecretStr, SecretBytes, Secret)
_SECRET_TYPE: Final = re.compile(r"\bSecret(?:Str|Bytes)?\b")


HIDDEN: Final = "(encrypted)"
"""The text that is shown in place of a value of an encrypted field."""


def without_values(shown: Mapping[str, Any], encrypted: Iterable[str]) -> dict[str, Any]:
    """Return the shown form of a record with ``HIDDEN`` for each of these fields that has a value."""
    return {**shown, **{name: HIDDEN for name in encrypted if shown.get(name) is not None}}


def revealed(record: BaseModel) -> tuple[dict[str, Any], list[str]]:
    """Return the JSON form of a record with its secrets as they are, and the names of the fields that have some.

    Raises:
        ValueError: pydantic cannot write a value as JSON, such as bytes that are not UTF-8.
    """
    shown, held = record.model_dump(mode="json"), record.model_dump()
    names = [name for name, value in held.items() if any(_secrets_in(value))]
    form = record.model_config.get("ser_json_bytes", "utf8")
    for name in names:
        shown[name] = _with_secrets(held[name], shown[name], form)
    return shown, names


def has_mask(value: object) -> bool:
    """Return whether a value, with dicts in place of objects, holds a secret whose value is the mask of one."""
    return any(_plain(one) in (MASK, MASK.encode()) for one in _secrets_in(value))


def secret_fields(types: Mapping[str, str]) -> list[str]:
    """Return the fields whose type in the catalogue holds secrets; those inside of nested models are not known.

    Examples:
        >>> secret_fields({"id": "int", "token": "SecretStr | None", "keys": "list[SecretBytes]"})
        ['token', 'keys']
    """
    return [name for name, kind in types.items() if _SECRET_TYPE.search(kind)]


def masked(document: Mapping[str, Any], secrets: Iterable[str]) -> dict[str, Any]:
    """Return a stored document with a mask for each of these fields that has a value."""
    return {**document, **{name: MASK for name in secrets if document.get(name)}}


def _is_secret(value: object) -> TypeGuard[_AnySecret]:
    return isinstance(value, _SECRETS)


def _plain(secret: _AnySecret) -> Any:
    return secret.get_secret_value()


def _secrets_in(value: object) -> Iterator[_AnySecret]:
    """Yield the secrets in a value of ``model_dump()``, which has dicts in place of objects."""
    if _is_secret(value):
        yield value
    elif isinstance(value, Mapping):
        for pair in cast("Mapping[object, object]", value).items():
            yield from _secrets_in(pair)
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        for one in cast("list[object]", value):
            yield from _secrets_in(one)


def _with_secrets(held: object, shown: object, form: Any) -> Any:
    """Return the JSON form of a value (``shown``) with its secrets.

    Whatever a serializer of the class has written in place of a secret stays.
    """
    if _is_secret(held):
        return to_jsonable_python(_plain(held), bytes_mode=form) if shown in (MASK, "") else shown
    if isinstance(held, Mapping):
        return _of_mapping(cast("Mapping[object, object]", held), shown, form)
    if isinstance(held, (set, frozenset)) and any(_secrets_in(cast("object", held))):
        # Both have an order of their own, so no item can be found in the other one.
        return [_with_secrets(one, _json_of(one, form), form) for one in cast("set[object]", held)]
    if isinstance(held, (list, tuple, deque)) and isinstance(shown, list):
        both = zip(cast("list[object]", held), cast("list[object]", shown), strict=False)
        return [_with_secrets(one, one_shown, form) for one, one_shown in both]
    return shown


def _of_mapping(held: Mapping[object, object], shown: object, form: Any) -> object:
    if any(_secrets_in(list(held))):  # as keys, whose masks are equal
        items = [(key, _json_of(key, form), one, _json_of(one, form)) for key, one in held.items()]
        pairs = ((_with_secrets(key, mask, form), _with_secrets(one, text, form)) for key, mask, one, text in items)
        return dict[object, object](pairs)
    unchanged = shown
    texts = cast("dict[str, object]", shown) if isinstance(shown, dict) else {}
    if len(texts) != len(held):
        return unchanged
    both = zip(texts.items(), held.values(), strict=True)
    found: dict[str, object] = {key: _with_secrets(one, text, form) for (key, text), one in both}
    return found


def _json_of(value: object, form: Any) -> Any:
    return to_jsonable_python(value, bytes_mode=form)
