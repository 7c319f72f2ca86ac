"""Predicates as text for people, and as bytes that tell two filters apart in every process.

Rules of this module: pure. Long operands are cut in the text, never in the bytes.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from kvmodels.encoding.values import MsgpackCodec
from kvmodels.query.matching import comparison_column, packed_key
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.names import PRIMARY_KEY
from kvmodels.schema.predicate import AllOf, AnyOf, Condition, Predicate
from kvmodels.schema.spans import has_spans, parts_of

__all__ = ["describe", "digest"]

_SYMBOLS: Final = {"exact": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "startswith": "startswith"}
_SHOWN_VALUES: Final = 5
_SHOWN_OPERAND: Final = 60


def describe(predicate: Predicate) -> str:
    """A predicate as a person writes it.

    Examples:
        >>> describe(AnyOf((Condition("age", "gte", 18), Condition("age", "isnull", True))))
        '(age >= 18 or age is None)'
        >>> describe(Condition("names", "startswith", "Par", any=True, negated=True))
        "not (any names startswith 'Par')"
    """
    if isinstance(predicate, AllOf):
        return " and ".join(map(describe, predicate.parts)) or "anything"
    if isinstance(predicate, AnyOf):
        parts = (f"({describe(part)})" if isinstance(part, AllOf) else describe(part) for part in predicate.parts)
        return f"({' or '.join(parts)})" if predicate.parts else "nothing"
    text = _described(predicate)
    return f"not ({text})" if predicate.negated else text


def digest(schema: ModelSchema, predicate: Predicate) -> list[Any]:
    """What a predicate does, as plain data that does not depend on the process.

    Raises:
        InvalidValueError: an operand that cannot be stored.
    """
    if isinstance(predicate, AllOf):
        return ["all", *(digest(schema, part) for part in predicate.parts)]
    if isinstance(predicate, AnyOf):
        return ["any", *(digest(schema, part) for part in predicate.parts)]
    head = [predicate.field, predicate.lookup, predicate.any, predicate.negated]
    return [*head, _operand(schema, predicate._replace(negated=False))]


def _described(condition: Condition) -> str:
    name, lookup, operand, element, _ = condition
    name = f"any {name}" if element else name
    if lookup == "isnull":
        return f"{name} is None" if operand else f"{name} is not None"
    if lookup == "contains":
        return f"{_shown(operand)} in {name}"
    if lookup == "exact" and element:
        return f"{_shown(operand)} in {condition.field}"
    if lookup == "range":
        low, high, bounds = operand
        left, right = "<" if bounds[0] == "(" else "<=", "<" if bounds[1] == ")" else "<="
        return f"{_shown(low)} {left} {name} {right} {_shown(high)}"
    if lookup in ("in", "not_in"):
        more = ", …" if len(operand) > _SHOWN_VALUES else ""
        values = ", ".join(_shown(value) for value in operand[:_SHOWN_VALUES])
        return f"{name} {'in' if lookup == 'in' else 'not in'} ({values}{more})"
    return f"{name} {_SYMBOLS[lookup]} {_shown(operand)}"


def _shown(value: Any) -> str:
    text = f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
    return text if len(text) <= _SHOWN_OPERAND else f"{text[:_SHOWN_OPERAND]}…"


def _operand(schema: ModelSchema, condition: Condition) -> Any:
    name, lookup, operand, _, _ = condition
    if name == PRIMARY_KEY:
        return sorted(packed_key(schema, values) for values in operand)
    if lookup in ("isnull", "contains"):
        return operand
    column = comparison_column(schema, name)
    if column is not None and has_spans(condition, column):
        return [[span.start, span.end] for span in parts_of(condition, column)]
    values = operand if lookup in ("in", "not_in") else (operand,)
    storage, codec = schema.fields.get(name), MsgpackCodec()
    encode = None if storage is None else storage.encode
    stored = [value if value is None or encode is None else encode(value) for value in values]
    return [list(codec.encode(value)) for value in stored]
