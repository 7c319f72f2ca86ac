"""Django's names of methods and attributes that do not exist here, and what to write instead.

Rules of this module: the errors are plain ``AttributeError``, so that ``hasattr`` and ``getattr`` with a default work.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

_OF_QUERIES: Final[Mapping[str, str]] = {
    "alias": "declare a computed column, Index(..., key=function, name=...)",
    "annotate": 'write group_by("country").aggregate(n=Count()); for each record, compute the value in Python',
    "dates": "declare a computed column of the part of the date, and call distinct() on it",
    "datetimes": "declare a computed column of the part of the date, and call distinct() on it",
    "defer": "write only(Class) with a class that has the fields to read",
    "difference": "combine conditions: filter(first & ~second)",
    "extra": "there is no SQL; conditions are those of filter()",
    "intersection": "combine conditions: filter(first & second)",
    "none": "write filter(id__in=[])",
    "prefetch_related": "write fetch_referrers(...) for records that refer to one, with_related(...) for targets, or "
    "links(User.groups).fetch(...)",
    "raw": "there is no SQL; conditions are those of filter()",
    "reverse": 'write order_by("-joined")',
    "select_for_update": "write mutate(key, function), or use a transaction, which is repeated after a conflict",
    "select_related": "write with_related(Book.author_id), which returns tuples of records and their targets",
    "union": "combine conditions: filter(first | second)",
    "using": "open the other database, and write db[User]",
}
_OF_CLASSES: Final[Mapping[str, str]] = {
    "_meta": "write describe(User)",
    "_default_manager": "write db[User]",
    "objects": "write db[User], because a model belongs to no database",
}
_OF_RECORDS: Final[Mapping[str, str]] = {
    "delete": "write db[User].remove(user)",
    "full_clean": "every write validates the object",
    "refresh_from_db": "write db[User].refresh(user)",
    "save": "write db[User].save(user)",
}


def missing_of_query(thing: object, name: str) -> AttributeError:
    """Return the error for an attribute that a repository, query or transaction does not have.

    Examples:
        >>> print(missing_of_query([], "none"))
        'list' object has no attribute 'none'. Django's name; here, write filter(id__in=[]).
    """
    return _missing(f"{type(thing).__name__!r} object", thing, name, _OF_QUERIES)


def missing_of_class(cls: type[Any], name: str) -> AttributeError | None:
    """Return the error for an attribute that a model class does not have; None for a name that is not Django's."""
    return _missing(f"model {cls.__name__!r}", cls, name, _OF_CLASSES) if name in _OF_CLASSES else None


def missing_of_record(record: object, name: str, relations: Container[str] = ()) -> AttributeError | None:
    """Return the error for an attribute that a record does not have; None for a name that is not Django's.

    ``relations``: the names of its many-to-many relations, which only the class has as attributes.
    """
    if name in relations:
        way = f"db[{type(record).__name__}].links({type(record).__name__}.{name}).fetch([record])"
        text = (
            f"{type(record).__name__!r} object has no attribute {name!r}, because nothing is stored in it. Read {way}."
        )
        return AttributeError(text, name=name, obj=record)
    known = name in _OF_RECORDS
    return _missing(f"{type(record).__name__!r} object", record, name, _OF_RECORDS) if known else None


def _missing(shown: str, thing: object, name: str, names: Mapping[str, str]) -> AttributeError:
    way = f". Django's name; here, {names[name]}." if name in names else ""
    return AttributeError(f"{shown} has no attribute {name!r}{way}", name=name, obj=thing)
