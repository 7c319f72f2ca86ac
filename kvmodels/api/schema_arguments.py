"""Arguments of changes of the schema.

Rules of this module: pure checks; an invalid value raises InvalidArgumentError.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast, get_args

from kvmodels.catalog import plan_rules
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows import tenants
from kvmodels.flows.arguments import items_of
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.definition.values import RESERVED_FIELD

_ALLOW_HINT: Final = 'Give names in a tuple: allow=("drop_index",). print(db.plan()) shows which steps need one.'
_FORGET_HINT: Final = 'Give names of fields that the model does not declare, in a tuple: forget=("nick",).'
_TENANTS_HINT: Final = 'Give True for all tenants, or names in a list: tenants=["acme"].'


def require_sample(sample: object) -> None:
    """Refuse an invalid number of records to try."""
    if sample is not None and (type(sample) is not int or sample < 0):
        raise InvalidArgumentError(
            "sample must be a number of records",
            argument="sample",
            value=sample,
            hint="Give the number of records of each collection to try the models on: 0 for none, None for all.",
        )


def require_forgotten(schema: ModelSchema, forget: Iterable[str]) -> tuple[str, ...]:
    """Return the names of fields to forget. Raises InvalidArgumentError for a declared or reserved one, or no name."""
    names = items_of("forget", forget, _FORGET_HINT)
    for name in (forget,) if isinstance(forget, str) else names:
        is_name = isinstance(cast("object", name), str) and not isinstance(forget, str)
        if not is_name or name in schema.fields or name.startswith(RESERVED_FIELD):
            raise InvalidArgumentError(
                "a field to forget is declared, reserved, or no name",
                argument="forget",
                value=name,
                hint=_FORGET_HINT,
            )
    return tuple(names)


def require_repair(repair: object) -> None:
    """Refuse an unknown kind of repair."""
    if repair not in (True, False, "all"):
        raise InvalidArgumentError(
            "an unknown kind of repair",
            argument="repair",
            value=repair,
            expected=(False, True, "all"),
            hint="Give False to report, True to repair entries, 'all' to also delete undecodable rows.",
        )


def require_allowed(allow: Iterable[str]) -> list[str]:
    """Return the names of rules to lift."""
    names = items_of("allow", allow, _ALLOW_HINT)
    unknown = [name for name in names if name not in get_args(plan_rules.Allowed)]
    if unknown or isinstance(allow, str):
        raise InvalidArgumentError(
            "allow= names no rule that can be lifted",
            argument="allow",
            value=allow if isinstance(allow, str) else unknown[0],
            expected=get_args(plan_rules.Allowed),
            hint=_ALLOW_HINT,
        )
    return names


def require_names(given: object) -> list[str] | None:
    """Return the names of tenants, each once; None for all tenants."""
    if given is True:
        return None
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidArgumentError(
            "tenants= is neither True nor a list of names", argument="tenants", value=given, hint=_TENANTS_HINT
        )
    return [*dict.fromkeys(tenants.require_name(name) for name in cast("Iterable[object]", given))]


def require_concurrency(number: object) -> int:
    """Return the number of tenants to work on at the same time."""
    if type(number) is not int or number < 1:
        raise InvalidArgumentError(
            "concurrency is not a positive whole number",
            argument="concurrency",
            value=number,
            hint="Give the number of tenants to work on at the same time, 1 or more.",
        )
    return number
