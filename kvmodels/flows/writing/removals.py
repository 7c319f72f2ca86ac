"""Remove one record, by its key or by an object.

Rules of this module: a decision to refuse is taken in ``propose``, on what was read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from kvmodels.catalog.keyspace import reference_guards
from kvmodels.core.operations import Row
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.arguments import versions_of
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Flow
from kvmodels.flows.writing.changes import KEEP, ChangeBuilder
from kvmodels.flows.writing.operation import AttemptState, CompiledWrite, Proposal, always
from kvmodels.flows.writing.record_write import RecordWrite, flow_of, packed_key, require_version, stale_error
from kvmodels.indexing.simple import record_writer
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.instances import ObjectState, drop_state, state_of

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor
_PROPOSAL: Final[type[Proposal[Any]]] = Proposal


def remove(
    context: Context, schema: ModelSchema, target: Any, *, if_version: str | Collection[str] | None = None
) -> Flow[bool]:
    """Remove a record by its primary key, or that of an object; see ``remove_key`` and ``remove_object``."""
    expected = None if if_version is None else versions_of(if_version)
    if not isinstance(target, schema.model):
        return remove_key(context, schema, target, expected)
    if expected is not None:
        raise InvalidArgumentError(
            "an object is removed at its own version",
            argument="if_version",
            value=if_version,
            hint="Leave if_version out, or give the primary key instead of the object.",
        )
    return remove_object(context, schema, target)


def remove_key(
    context: Context, schema: ModelSchema, given: Any, expected: tuple[bytes, ...] | None = None
) -> Flow[bool]:
    """Remove a record with all its entries; return False when it was absent and any version was expected.

    Hooks of removals get the object as it was stored; where the record cannot be read as one, they do not run.
    """
    values, pk = packed_key(context, schema, given)
    return flow_of(ChangeBuilder(context, schema, KEEP), _RemoveByKey, values, pk, expected)


def _is_target(view: HeaderView, schema: ModelSchema) -> bool:
    return bool(view.live[schema.collection].referrers)


def _removed(_: bytes) -> bool:
    return True


_REMOVED: Final[Proposal[bool]] = Proposal((), _removed)
"""The proposal of a removal that the engine compiles; its changes are not known before."""


class _RemoveByKey(RecordWrite):
    """Remove a record, of any version or of the expected one."""

    __slots__ = ("_expected", "_pk", "_values", "guesses")

    def __init__(
        self, writer: ChangeBuilder, values: tuple[Any, ...], pk: bytes, expected: tuple[bytes, ...] | None
    ) -> None:
        schema = writer.schema
        self._values, self._pk, self._expected = values, pk, expected
        view = writer.context.view
        # Hooks, and the class of a record of several, are asked of the row; what refers to it, of its guard.
        self.guesses = writer.life is None and schema.variants is None and not (view and _is_target(view, schema))
        super().__init__(writer, writer.context.layouts[schema.collection].prefix + pk)

    def keys(self, view: HeaderView, /) -> Sequence[bytes]:
        """Return the key of the record, and that of its guard if others may refer to it."""
        schema = self._writer.schema
        if self._writer.context.transaction is not None or not _is_target(view, schema):
            return (self._key,)
        return (self._key, reference_guards(schema.collection) + self._pk)

    def compiled(self, view: HeaderView, /) -> CompiledWrite[bool] | None:
        """Return a removal that the engine compiles, where the engine can."""
        context = self._writer.context
        if not context.removes or not self.guesses or self._expected is not None:
            return None
        compiler = record_writer(view.live[self._writer.schema.collection], view.guard, context.codec)
        removal = None if compiler is None else compiler.removal(self._pk, context.limits)
        return None if removal is None else (_REMOVED, removal)

    def propose(self, seen: AttemptState, /) -> Proposal[bool]:
        """Return the proposal that removes the record; one without changes if there is none."""
        writer = self._writer
        row = self.found(seen)
        require_version(writer.schema, self._values, self._expected, row)
        if row is None:
            return Proposal((), always(False))
        step = writer.remove(seen, self._pk, row, unread=True)
        return _new(_PROPOSAL, ((step[0],), _removed, _removed, None, step[2], None))


def remove_object(context: Context, schema: ModelSchema, instance: Any) -> Flow[bool]:
    """Remove the record of a loaded object if it has not changed since; an object never stored is removed by its key.

    Cost: one commit without a read. Raises StaleObjectError: the record changed or went since the object was loaded.
    """
    state = state_of(instance)
    writer = ChangeBuilder(context, schema, KEEP)
    if state is None:
        values = schema.primary_key_of(instance)
        return flow_of(writer, _RemoveByKey, values, context.layouts[schema.collection].pack(values), None)
    return flow_of(writer, _RemoveLoaded, instance, state)


class _RemoveLoaded(RecordWrite):
    """Remove the record of an object that was loaded from its present version."""

    __slots__ = ("_instance", "_loaded", "_pk", "_state", "reads")

    def __init__(self, writer: ChangeBuilder, instance: Any, state: ObjectState) -> None:
        layout = writer.context.layouts[writer.schema.collection]
        self._pk = layout.pack(state.key)
        super().__init__(writer, layout.key(self._pk))
        self.reads = state.expire_at is not None
        self._instance = instance
        self._loaded = Row(self._key, state.value, state.encoding, state.versionstamp, state.expire_at)
        self._state = state

    def propose(self, seen: AttemptState, /) -> Proposal[bool]:
        """Return the proposal that removes the record; StaleObjectError if it is of another version."""
        loaded = self._loaded
        current = loaded if seen.rows is None else seen.live_row(self._key)
        if current is None or current.versionstamp != loaded.versionstamp:
            raise stale_error(self._writer.schema, self._state.key, loaded, current)
        step = self._writer.remove(seen, self._pk, current)
        states = always(((self._instance, None),))
        return Proposal((step.change,), self._done, always(True), states, step.after)

    def _done(self, _: bytes) -> bool:
        drop_state(self._instance)
        return True
