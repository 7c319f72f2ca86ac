"""Change the links of one record of a many-to-many relation: add, remove, replace or remove all, in one commit.

A record that a query did not find is not checked by a commit, so two replacements at once could leave the links of
both. Therefore a replacement goes by the guard of the owner, which every new foreign key to the owner sets without a
check (``indexing/references.py``): it reads the guard together with the links, and its commit checks that no link was
added since. Links that it found are checked one by one, those that stay too.

Rules of this module: every link that a decision rests on is checked by the commit, present or absent. In a transaction,
reading does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kvmodels.catalog.keyspace import reference_guards
from kvmodels.core.operations import AtomicWrite, Check, Row, point
from kvmodels.errors import (
    InvalidArgumentError,
    KvModelsError,
    OperationTooLargeError,
    RetriesExhaustedError,
)
from kvmodels.flows.arguments import items_of, key_of_record
from kvmodels.flows.context import Context, HeaderView, planned, reload_header
from kvmodels.flows.effects import Flow, read_all, rows_at_once
from kvmodels.flows.reading.links import links_of
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.changes import (
    KEEP,
    ChangeBuilder,
    EncodedObject,
    PlannedChange,
    created_object,
    refused,
    stored,
    writing,
)
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite, Proposal, always
from kvmodels.indexing import rules
from kvmodels.indexing.compiler import WriteRefusal
from kvmodels.schema.definition.definition import ModelSchema, Relation
from kvmodels.schema.filters.operands import key_values

_TARGETS: Final = "Give the targets, objects or keys, one after the other for add() and remove(), in a list for set()."


def add(context: Context, relation: Relation, owner: object, targets: Sequence[object]) -> Flow[int]:
    """Add the links from a record to targets that it has no link to; return their number."""
    _refuse_required(relation)
    return writing(context, relation.links, KEEP, partial(_added, relation, owner, targets))


def remove(context: Context, relation: Relation, owner: object, targets: Sequence[object]) -> Flow[int]:
    """Remove the links from a record to targets; return the number of those that it had."""
    return writing(context, relation.links, KEEP, partial(_removed, relation, owner, targets))


def replace(context: Context, relation: Relation, owner: object, targets: Iterable[object]) -> Flow[int]:
    """Make the targets those of a record; return the number of links that were added or removed."""
    wanted = items_of("targets", targets, _TARGETS)
    if wanted:
        _refuse_required(relation)
    return writing(context, relation.links, KEEP, partial(_replaced, relation, owner, wanted))


def _added(relation: Relation, owner: object, targets: Sequence[object], writer: ChangeBuilder) -> Flow[int]:
    new = _new_links(writer, relation, owner, targets)
    changed = yield from _changed(_LinkWrite(writer, new, ()))
    return changed or 0


def _removed(relation: Relation, owner: object, targets: Sequence[object], writer: ChangeBuilder) -> Flow[int]:
    layout = writer.context.layouts[relation.links.collection]
    old = [layout.pack(key_of_link(relation, owner, target)) for target in targets]
    changed = yield from _changed(_LinkWrite(writer, {}, list(dict.fromkeys(old))))
    return changed or 0


def _replaced(relation: Relation, owner: object, targets: Sequence[object], writer: ChangeBuilder) -> Flow[int]:
    context = writer.context
    started = context.monotonic()
    new = _new_links(writer, relation, owner, targets)
    for _ in range(context.retry.attempts):
        guard, present = yield from _present(context, relation, owner)
        old = [pk for pk in present if pk not in new]
        changed = yield from _changed(_LinkWrite(writer, new, old, guard))
        if changed is not None:
            return changed
    raise RetriesExhaustedError(
        "others added links to the record in every attempt",
        attempts=context.retry.attempts,
        elapsed_s=round(context.monotonic() - started, 6),
        failed_checks=(),
    )


def key_of_link(relation: Relation, own: object, other: object) -> tuple[Any, ...]:
    """Return the primary key of a link, for objects or keys of both sides. Raises InvalidValueError."""
    given = {relation.own: own, relation.other: other}
    return key_values(relation.links, tuple(given[column.field] for column in relation.links.primary_key))


def _new_links(
    writer: ChangeBuilder, relation: Relation, owner: object, targets: Sequence[object]
) -> dict[bytes, EncodedObject]:
    """Return a link to each target by its packed primary key."""
    links: dict[bytes, EncodedObject] = {}
    for target in targets:
        values = key_of_link(relation, owner, target)
        fields = {column.field: value for column, value in zip(relation.links.primary_key, values, strict=True)}
        item = writer.first(created_object(relation.links, fields, KEEP, by_fields=True))
        links[item.pk] = item
    return links


def _refuse_required(relation: Relation) -> None:
    """Refuse to make a link whose model has further fields without defaults. Raises InvalidArgumentError."""
    keys = (relation.own, relation.other)
    needed = [name for name, field in relation.links.fields.items() if field.required and name not in keys]
    if needed:
        name = relation.links.name
        raise InvalidArgumentError(
            "the link model has fields of its own, whose values a relation does not know",
            argument=relation.name,
            expected=tuple(needed),
            hint=f"Write the link itself: db[{name}].create({relation.own}=..., {relation.other}=..., "
            f"{needed[0]}=...).",
        )


def _version(row: Row | None) -> bytes | None:
    return None if row is None else row.versionstamp


class _Guard(NamedTuple):
    """The guard of an owner, as it was read together with its links."""

    key: bytes
    row: Row | None


def _present(context: Context, relation: Relation, owner: object) -> Flow[tuple[_Guard, list[bytes]]]:
    """Return the guard of an owner, and the packed primary keys of its links, of one snapshot."""
    limits = context.limits
    most = min(limits.max_checks, rows_at_once(limits, limits.max_read_entries, others=2) - 1)
    target = relation.links.targets[relation.own]
    pk = context.layouts[target.collection].pack(key_of_record(target, owner))
    guard = reference_guards(target.collection) + pk
    while True:
        view, keys = yield from planned(context, relation.links, lambda live: links_of(context, live, relation))
        found = yield from read_all(limits, [point(guard), keys.span(pk, most + 1)], view.guard)
        if found is not None:
            break
        yield from reload_header(context)
    guards, entries = found
    if len(entries) > most:
        raise _too_many(context, relation, len(entries))
    return _Guard(guard, guards[0] if guards else None), [keys.pk_of(context.codec, entry) for entry in entries]


def _changed(write: _LinkWrite) -> Flow[int | None]:
    """Commit changes of links; return None if others have added links since they were read."""
    if not write.size:
        return 0
    try:
        return (yield from execute(write.context, write))
    except OperationTooLargeError as error:
        error.hint = _hint(write.schema)
        raise


def _too_many(context: Context, relation: Relation, size: int) -> OperationTooLargeError:
    return OperationTooLargeError(
        "a record has more links than one commit may change",
        limit="max_checks",
        size=size,
        maximum=context.limits.max_checks,
        limits=context.limits.whose("max_checks"),
        hint=_hint(relation.links),
    )


def _hint(links: ModelSchema) -> str:
    return (
        f"Change fewer links at once with add() and remove(), or write the links themselves in batches: "
        f"db[{links.name}].filter(...).delete() and db[{links.name}].bulk_create([...])."
    )


class _LinkWrite(LogicalWrite["int | None"]):
    """One commit that stores the links that are missing, and removes others."""

    def __init__(
        self,
        writer: ChangeBuilder,
        new: Mapping[bytes, EncodedObject],
        old: Sequence[bytes],
        guard: _Guard | None = None,
    ) -> None:
        self.schema = writer.schema
        self.context = writer.context
        self.size = len(new) + len(old)
        self._writer = writer
        self._layout = writer.context.layouts[writer.schema.collection]
        self._new = new
        self._old = old
        self._guard = guard

    def keys(self, _: HeaderView, /) -> Sequence[bytes]:
        """Return the keys of the links, and the guard."""
        keys = [self._layout.key(pk) for pk in (*self._new, *self._old)]
        return keys if self._guard is None else [*keys, self._guard.key]

    def propose(self, seen: AttemptState, /) -> Proposal[int | None]:
        """Return the changes; None as the result if a link was added since the guard was read."""
        guard = self._guard
        if guard is not None and _version(seen.row(guard.key)) != _version(guard.row):
            return Proposal((), always(None), always(None))
        steps: list[PlannedChange] = []
        checks: list[Check] = [] if guard is None else [rules.links_check(guard.key, guard.row)]
        for pk, item in self._new.items():
            key = self._layout.key(pk)
            row = seen.live_row(key)
            if row is None:
                steps.append(self._writer.store(item, seen, seen.row(key)))
            else:
                checks.append(rules.kept_link_check(row))
        for pk in self._old:
            row = seen.live_row(self._layout.key(pk))
            if row is not None:
                steps.append(self._writer.remove(seen, pk, row))
        return self._proposal(steps, checks)

    def _proposal(self, steps: Sequence[PlannedChange], checks: Sequence[Check]) -> Proposal[int | None]:
        changes = tuple(step.change for step in steps)
        after = tuple(call for step in steps for call in step.after)

        def done(versionstamp: bytes) -> int:
            for step in steps:
                if step.item is not None and step.after:  # hooks receive it
                    stored(step.item, step.change, versionstamp)
            return len(steps)

        # A transaction checks what it has read; without changes there is no commit to check anything.
        extra = AtomicWrite(tuple(checks)) if steps and self.context.transaction is None else None
        return Proposal(changes, done, always(len(steps)), None, after, extra)

    def refused(self, refusal: WriteRefusal, /) -> KvModelsError:
        """Return the error for a link of which one side is missing."""
        return refused(refusal)
