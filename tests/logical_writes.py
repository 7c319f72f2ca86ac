"""Logical writes that are made of functions, for tests that commit changes of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kvmodels.errors import KvModelsError
from kvmodels.flows.context import HeaderView
from kvmodels.flows.writing.changes import refused
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite, Proposal
from kvmodels.indexing.compiler import WriteRefusal
from kvmodels.schema.definition.definition import ModelSchema

R = TypeVar("R")


class FunctionWrite(LogicalWrite[R], Generic[R]):
    """A write of the records with some keys, whose changes a function proposes."""

    def __init__(
        self, schema: ModelSchema, keys: Sequence[bytes], propose: Callable[[AttemptState], Proposal[R]]
    ) -> None:
        self.schema = schema
        self._keys = keys
        self._propose = propose

    def keys(self, _: HeaderView, /) -> Sequence[bytes]:
        return self._keys

    def propose(self, seen: AttemptState, /) -> Proposal[R]:
        return self._propose(seen)

    def refused(self, refusal: WriteRefusal, /) -> KvModelsError:
        return refused(refusal)
