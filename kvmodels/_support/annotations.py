"""Annotations of classes and functions, without a failure over names that do not exist yet.

Rules of this module: no state; nothing but a class body or a function is read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import Signature, signature
from typing import Any

from typing_extensions import Format, get_annotations


def own_annotations(cls: type[Any]) -> dict[str, Any]:
    """Return the annotations in the body of a class.

    From Python 3.14 on, reading ``__annotations__`` evaluates them, and fails where one names a class that is defined
    later; ``__dict__`` has them only where the module postpones evaluation. Here such a name is a forward reference.

    Examples:
        >>> class Order:
        ...     id: int
        >>> own_annotations(Order)
        {'id': <class 'int'>}
    """
    return get_annotations(cls, format=Format.FORWARDREF)


def signature_of(function: Callable[..., object]) -> Signature:
    """Return the parameters of a function.

    From Python 3.14 on, ``inspect.signature`` evaluates the annotations, and fails where one names a class that is
    imported for type checkers only, or is defined later. Here such a name is a forward reference.

    Examples:
        >>> list(signature_of(own_annotations).parameters)
        ['cls']
    """
    if sys.version_info >= (3, 14):
        return signature(function, annotation_format=Format.FORWARDREF)
    return signature(function)
