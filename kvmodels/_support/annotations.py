"""Annotations of classes, without a failure over names that do not exist yet.

Rules of this module: no state; nothing but a class body is read.
"""

from __future__ import annotations

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
