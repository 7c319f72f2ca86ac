"""The marker of a field whose values are encrypted in the store.

Rules of this module: as for the other markers, metadata at run time and a descriptor to type checkers.
``schema/encryption/fields.py`` checks it against the other declarations of its class.
"""

from __future__ import annotations

from typing import Any, Never, TypeVar, overload

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels.codecs.sealing.key_ring import LARGEST_ID
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.expressions import FieldRef
from kvmodels.schema.declare.markers import FieldMarker

T = TypeVar("T")


class Encrypted(FieldMarker[T]):
    """Encrypts the values of a field in the store; objects, JSON and the JSON schema have the plain type.

    The database gets the keys, ``Database(url, models=[...], keys=KeyRing({1: key}))``, and needs the extra ``crypto``.
    ``Annotated[Encrypted[str], Unique()]`` adds a blind index, which finds equal values.

    Args:
        index_key: the id of the master key of blind values. Another id is another index, which a build makes; the key
            stays in use until then.

    Raises:
        ModelDefinitionError: the id is not a whole number from 1 on.

    Examples:
        >>> from typing import Annotated
        >>> Encrypted[str] == Annotated[str, Encrypted()]
        True
    """

    def __init__(self, *, index_key: int = 1, **unknown: Never) -> None:
        self._refuse_unknown(unknown)
        if type(index_key) is not int or not 1 <= index_key <= LARGEST_ID:
            raise ModelDefinitionError(
                "the id of a key is not a whole number from 1 on",
                option=f"Encrypted(index_key={short_repr(index_key)})",
                hint="Give the id of a key of the ring: Encrypted(index_key=2).",
            )
        self.index_key = index_key

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> FieldRef[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any]) -> Any:
        return self  # as for the other markers


show_public_path(Encrypted)
