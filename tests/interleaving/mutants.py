"""One function of the package each, with one rule taken away; none raises anything by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from kvmodels.flows import batches, build_batch, retry, token
from kvmodels.maintenance import rules
from kvmodels.maintenance.changes import Compiled, NeedRows, RecordChange, Violation
from kvmodels.maintenance.compiler import compile_write
from kvmodels.operations import AtomicWrite

Patch = pytest.MonkeyPatch


class Mutant(NamedTuple):
    """What is taken away, and how. Where no tokens are kept, a judge cannot count by them."""

    name: str
    lost: str
    apply: Callable[[Patch], None]
    keeps_tokens: bool = True


def _no_slot_check(patch: Patch) -> None:
    patch.setattr(rules, "slot_check", lambda key, row: None)


def _no_record_check(patch: Patch) -> None:
    real = rules.record_check
    patch.setattr(
        rules, "record_check", lambda change, now_ms: None if change.old is not None else real(change, now_ms)
    )


def _no_header_check(patch: Patch) -> None:
    patch.setattr(rules, "header_check", lambda header: None)


def _touch_beside_the_compiler(patch: Patch) -> None:
    real = build_batch._change

    def touch(context: Any, live: Any, index: Any, row: Any) -> Any:
        change = real(context, live, index, row)
        if not isinstance(change, RecordChange):
            return change
        return change._replace(live=replace(change.live, maintained=(index,)))

    patch.setattr(build_batch, "_change", touch)


def _no_absence_check(patch: Patch) -> None:
    real = rules.record_check
    patch.setattr(rules, "record_check", lambda change, now_ms: None if change.old is None else real(change, now_ms))


def _no_fencing(patch: Patch) -> None:
    patch.setattr(rules, "token_check", lambda key: None)


def _no_token(patch: Patch) -> None:
    patch.setattr(token.Token, "attach", lambda self, write, value: write)


def _no_guard(patch: Patch) -> None:
    real = batches._Reading.__init__

    def unguarded(self: Any, *args: Any) -> None:
        real(self, *args)
        self._guard = None

    patch.setattr(batches._Reading, "__init__", unguarded)


def _no_fence(patch: Patch) -> None:
    patch.setattr(rules, "predates_fence", lambda change, index: False)


def _builder_skips_all(patch: Patch) -> None:
    real = build_batch._index_rows

    def skipping(context: Any, live: Any, index: Any, *rest: Any, **advance: Any) -> Any:
        return real(context, live, replace(index, fence=bytes(10)), *rest, **advance)

    patch.setattr(build_batch, "_index_rows", skipping)


def _any_deadline(patch: Patch) -> None:
    patch.setattr(rules, "same_deadline", lambda change: True)


def _one_by_one(patch: Patch) -> None:
    real = compile_write

    def concatenated(changes: Any, rows: Any, **rest: Any) -> Compiled | NeedRows | Violation:
        checks: tuple[Any, ...] = ()
        mutations: tuple[Any, ...] = ()
        for change in changes:
            compiled = real((change,), rows, **rest)
            if not isinstance(compiled, Compiled):
                return compiled
            checks += compiled.write.checks
            mutations += compiled.write.mutations
        return Compiled(AtomicWrite(checks, mutations))

    patch.setattr(retry, "compile_write", concatenated)


MUTANTS = (
    Mutant("R1", "a slot that was read is not checked", _no_slot_check),
    Mutant("R2", "a record that was read is not checked", _no_record_check),
    Mutant("R3", "writes do not check the header", _no_header_check),
    Mutant("R4", "a build rewrites records without the other indexes", _touch_beside_the_compiler),
    Mutant("R5-record", "an insert does not check that the record is absent", _no_absence_check),
    Mutant("R5-token", "an operation sets its token without checking it", _no_fencing),
    Mutant("token", "an operation carries no token", _no_token, keeps_tokens=False),
    Mutant("guard", "a read through an index does not look at the header", _no_guard),
    Mutant("fence", "a writer takes the entries of an old record for present", _no_fence),
    Mutant("fence-builder", "a build takes every record for indexed", _builder_skips_all),
    Mutant("deadline", "entries keep their old deadline", _any_deadline),
    Mutant("fold", "the records of a commit are compiled one by one", _one_by_one),
)
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
