"""The marker of a field whose values are encrypted in the store.

Rules of this module: as for the other markers, metadata at run time and a descriptor to type checkers.
``schema/encryption/fields.py`` checks it against the other declarations of its class.
"""

from __future__ import annotations

from typing import Any, Final, Never, TypeVar, overload

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels.codecs.sealing.key_ring import LARGEST_ID
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.expressions import FieldRef
from kvmodels.schema.declare.markers import FieldMarker

T = TypeVar("T")

_HINT: Final = (
    "Give the id of a key of the ring, index_key=2, or both ids while an index moves to another key, index_key=(2, 1)."
)


class Encrypted(FieldMarker[T]):
    """Encrypts the values of a field in the store; objects, JSON and the JSON schema have the plain type.

    The database gets the keys, ``Database(url, models=[...], keys=KeyRing({1: key}))``, and needs the extra ``crypto``.
    ``Annotated[Encrypted[str], Unique()]`` adds a blind index, which finds equal values.

    Args:
        index_key: the id of the master key of blind values, or a tuple of several ids, each with an index of its own.
            Queries use the first of them that is built, so ``(2, 1)`` is the way from key 1 to key 2 without a pause.

    Raises:
        ModelDefinitionError: an id is not a whole number from 1 on, is given twice, or there is none.

    Examples:
        >>> from typing import Annotated
        >>> Encrypted[str] == Annotated[str, Encrypted()]
        True
    """

    def __init__(self, *, index_key: int | tuple[int, ...] = 1, **unknown: Never) -> None:
        self._refuse_unknown(unknown)
        given: tuple[Any, ...] = index_key if type(index_key) is tuple else (index_key,)
        option = f"Encrypted(index_key={short_repr(index_key)})"
        if not all(map(_is_id, given)):
            raise ModelDefinitionError("the id of a key is not a whole number from 1 on", option=option, hint=_HINT)
        if not given:
            raise ModelDefinitionError("an encrypted field has no index key", option=option, hint=_HINT)
        if len(set(given)) < len(given):
            raise ModelDefinitionError("an encrypted field has one index key twice", option=option, hint=_HINT)
        self.index_key = index_key
        self.index_keys: tuple[int, ...] = given

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> FieldRef[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any]) -> Any:
        return self  # as for the other markers


def _is_id(given: object) -> bool:
    return type(given) is int and 1 <= given <= LARGEST_ID


show_public_path(Encrypted)
