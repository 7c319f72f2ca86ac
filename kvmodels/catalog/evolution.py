"""The differences between the declared models and the store, as steps with named rules.

Rules of this module: pure; nothing is changed here. Every difference is one step with one rule, and a table gives the
safety, reason and action of each rule. A difference without a rule is refused; a difference that only the user can
decide about is refused until it is allowed by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Final, NamedTuple, cast

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.notebooks import html
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import IndexState, StoredCollection
from kvmodels.catalog.collection import (
    LiveCollection,
    is_retired,
    missing_upgrades,
    needed_version,
    replaces,
    retyped_columns,
    unbuilt_from_the_start,
    unkept_generations,
)
from kvmodels.catalog.plan_rules import NOTHING, RULES, Allowed, StepKind
from kvmodels.catalog.references import changed_effects, given_up_reference, unenforced_references
from kvmodels.core.truth import without_truth
from kvmodels.core.values import StoredAsJson
from kvmodels.errors import InvalidArgumentError
from kvmodels.schema.definition.definition import IndexDefinition, ModelSchema

CAUSES_SHOWN: Final = 3

_NO_STEPS: Final = "the store is as the models declare it"
_COLUMNS: Final = ("kind", "subject", "rule", "difference", "action", "allow")
_SHOWN: Final = 100
"""The most steps in a notebook."""


class RefusedRecord(NamedTuple):
    """A stored record that the models of this release cannot read or rewrite.

    Attributes:
        key: its primary key.
        cause: the field and its problem, or the index that could not hold it.
    """

    key: Annotated[Any, StoredAsJson]
    cause: str


class DecodingSample(NamedTuple):
    """The result of decoding some records of a collection with the model.

    Attributes:
        number: the number of records that were tried.
        refused: the records that could not be decoded.
    """

    number: int
    refused: tuple[RefusedRecord, ...]

    def __str__(self) -> str:
        causes: dict[str, list[RefusedRecord]] = {}
        for one in self.refused:
            causes.setdefault(one.cause, []).append(one)
        most = sorted(causes.values(), key=len, reverse=True)[:CAUSES_SHOWN]
        told = "; ".join(f"{found[0].cause} ({len(found)}, first {short_repr(found[0].key)})" for found in most)
        return f"{len(self.refused)} of {self.number} tried: {told}"


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One difference between the models and the store.

    Attributes:
        collection: the collection of the model.
        subject: the field or the index; None for the whole collection.
        rule: the name of the rule, a key of the table in the guide on evolving a schema.
        detail: the stored and the declared form, in short; may be empty.
        allowed: whether ``allow=`` contained the name that the rule requires.
        records: for a step about records, the records that were tried and refused.
    """

    collection: str
    subject: str | None
    rule: str
    detail: str = ""
    allowed: bool = False
    records: tuple[RefusedRecord, ...] = ()

    @property
    def kind(self) -> StepKind:
        """SAFE, NEEDS_REBUILD or REFUSED; an allowed step is not refused."""
        kind = RULES[self.rule].kind
        return StepKind.SAFE if self.allowed and kind is StepKind.REFUSED else kind

    @property
    def reason(self) -> str:
        """Return the difference that was found."""
        return RULES[self.rule].reason

    @property
    def action(self) -> str:
        """Return the work of ``db.apply()``, or how the user can resolve a refusal."""
        return RULES[self.rule].action

    @property
    def allow(self) -> Allowed | None:
        """Return the name for ``db.apply(allow=...)`` that lifts the refusal, or extends the step."""
        return RULES[self.rule].allow

    @property
    def idle(self) -> bool:
        """Whether ``db.apply()`` has nothing to do for this step."""
        return not self.allowed and self.action.startswith(NOTHING)

    def __str__(self) -> str:
        subject = self.collection if self.subject is None else f"{self.collection}.{self.subject}"
        detail = f" ({self.detail})" if self.detail else ""
        allow = f" [allow={self.allow!r}]" if self.allow and not self.allowed else ""
        return f"{self.kind.value:<13}  {subject}  {self.rule}: {self.reason}{detail}\n{'':13}  -> {self.action}{allow}"


@without_truth("plan.is_current, or plan.steps")
@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """All differences between the models and the store, in the order in which ``db.apply()`` resolves them.

    Examples:
        >>> print(SchemaPlan(()))
        the store is as the models declare it
    """

    steps: tuple[PlanStep, ...]

    @property
    def refused(self) -> tuple[PlanStep, ...]:
        """The steps that prevent ``db.apply()`` from doing anything."""
        return tuple(step for step in self.steps if step.kind is StepKind.REFUSED)

    @property
    def is_current(self) -> bool:
        """Whether ``db.apply()`` has nothing to do."""
        return all(step.idle for step in self.steps)

    def allowing(self, names: Iterable[str]) -> SchemaPlan:
        """Return the plan with the steps that these names allow."""
        given = cast("object", names)
        allowed = list(names) if isinstance(given, Iterable) and not isinstance(given, str) else [None]
        if not all(isinstance(name, str) for name in allowed):
            raise InvalidArgumentError(
                "allow= is not a list of names",
                argument="allow",
                value=names,
                hint='Give names of the table of rules: ["change_type"].',
            )
        return SchemaPlan(tuple(replace(step, allowed=step.allow in allowed) for step in self.steps))

    def of(self, collection: str, *rules: str) -> tuple[PlanStep, ...]:
        """Return the steps of one collection, optionally only those of some rules."""
        return tuple(step for step in self.steps if step.collection == collection and (not rules or step.rule in rules))

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps)) if self.steps else _NO_STEPS

    def _repr_html_(self) -> str:
        if not self.steps:
            return html.view(_NO_STEPS)
        refused = len(self.refused)
        title = f"{len(self.steps)} step{'' if len(self.steps) == 1 else 's'}, {refused} refused"
        table = html.Table(_COLUMNS, [_row(step) for step in self.steps[:_SHOWN]])
        more = f"The first {_SHOWN} steps; print the plan to see all." if len(self.steps) > _SHOWN else ""
        return html.view(title, table=table, note=more)


def _row(step: PlanStep) -> list[html.Cell]:
    subject = step.collection if step.subject is None else f"{step.collection}.{step.subject}"
    detail = f" ({step.detail})" if step.detail else ""
    texts = (step.kind.value, subject, step.rule, f"{step.reason}{detail}", step.action)
    allow = repr(step.allow) if step.allow and not step.allowed else ""
    return [html.Cell(text) for text in (*texts, allow)]


def plan_collection(
    live: LiveCollection, stored: StoredCollection | None, *, empty: bool, tried: DecodingSample
) -> Iterator[PlanStep]:
    """Return the steps of one collection.

    ``stored`` is None if the header does not list the collection. ``empty`` means that it has no records, so no record
    can lack a field. ``tried`` is the result of decoding some of its records with the model.
    """
    schema = live.schema
    if stored is None:
        yield PlanStep(schema.collection, None, "collection_added")
        for name in () if empty else schema.indexes:
            yield PlanStep(schema.collection, name, "index_unbuilt")
        return
    difference = _Difference(live, stored, empty)
    blocked = list(difference.of_collection())
    yield from blocked
    if any(step.kind is StepKind.REFUSED for step in blocked):
        return  # nothing else can be determined yet
    fields = list(difference.of_fields())
    yield from fields
    if tried.refused and all(step.rule != "field_required" for step in fields):  # which reports this for every record
        rule = "upgrade_fails" if schema.schema_version > stored.schema_version else "records_refused"
        yield PlanStep(schema.collection, None, rule, str(tried), records=tried.refused)
    if live.refused is None:
        yield from difference.of_indexes()
        yield from difference.of_history()
        yield from difference.of_records()
    elif all(step.kind is not StepKind.REFUSED or step.allow is not None for step in fields):
        # A field of a nested model, or the result of a function, which the list of fields does not contain. Allowing
        # another step does not help: no process can maintain this index.
        yield PlanStep(schema.collection, live.refused.index, "column_retyped")


class _Difference:
    """The differences of one collection."""

    def __init__(self, live: LiveCollection, stored: StoredCollection, empty: bool) -> None:
        self._live = live
        self._schema: ModelSchema = live.schema
        self._stored = stored
        self._empty = empty

    def _step(self, subject: str | None, rule: str, detail: str = "") -> PlanStep:
        return PlanStep(self._schema.collection, subject, rule, detail)

    def _upgrades(self, field: str) -> bool:
        """Return whether an upgrade changes a field in records that may be stored."""
        return self._schema.touched.get(field, 1) > self._stored.oldest

    def of_collection(self) -> Iterator[PlanStep]:
        schema, stored = self._schema, self._stored
        declared = tuple(tuple(column.signature()) for column in schema.primary_key)
        if declared != stored.primary_key:
            keys = [", ".join(f"{name}: {codec}" for name, codec, *_ in key) for key in (stored.primary_key, declared)]
            yield self._step(None, "primary_key_changed", " -> ".join(keys))
        if stored.dropping:
            yield self._step(None, "collection_dropping")
        if self._live.unknown and self._live.read_only is not None:
            found = self._live.read_only
            yield self._step(found.index, "description_unknown", ", ".join(found.stored))
        versions = f"{stored.schema_version} -> {schema.schema_version}"
        if schema.schema_version < stored.schema_version:
            yield self._step(None, "schema_version_lower", versions)
        elif schema.schema_version > stored.schema_version:
            yield self._step(None, "schema_version_raised", versions)
        missing = missing_upgrades(schema, stored)
        if missing:
            yield self._step(None, "upgrade_missing", ", ".join(f"to {version}" for version in missing))

    # --- fields -----------------------------------------------------------------------------------------------

    def of_fields(self) -> Iterator[PlanStep]:
        for name, field in self._schema.fields.items():
            known = self._stored.fields.get(name)
            if known is None:
                added = self._added(name)
                detail = field.type_name + self._factory(added, name) + self._former(added, field.type_name)
                yield self._step(name, added, detail)
                continue
            rule = self._retyped(name, known, field.type_name)
            if rule is not None:
                yield self._step(name, rule, f"{known} -> {field.type_name}")
        for name, known in self._stored.fields.items():
            if name not in self._schema.fields and not self._upgrades(name):  # otherwise the upgrade handles it
                yield self._step(name, "field_removed", known)

    def _factory(self, rule: str, name: str) -> str:
        """Explain why a field that has a ``default_factory`` has no default for stored records."""
        info = self._schema.model.model_fields.get(name) if rule == "field_required" else None
        if info is None or info.default_factory is None:
            return ""
        return "; its default_factory may return a different value at every read, so it is not used for stored records"

    def _former(self, rule: str, type_name: str) -> str:
        """Ask whether an added field is a renamed one: without a rename, the values stay under the old name."""
        if rule == "field_filled" or self._empty:
            return ""
        gone = [
            name
            for name, known in self._stored.fields.items()
            if known == type_name and name not in self._schema.fields and not self._upgrades(name)
        ]
        return f"; renamed from {' or '.join(gone)}? Then an upgrade has to move the values" if gone else ""

    def _added(self, name: str) -> str:
        if self._upgrades(name):
            return "field_filled"
        rule = "field_required" if self._schema.fields[name].required else self._of_class(name)
        return "field_unmissed" if self._empty and rule != "field_added" else rule

    def _of_class(self, name: str) -> str:
        """Return the rule for an added field that not every class of a shared collection must have."""
        variants = self._schema.variants
        classes = () if variants is None else variants.by_class.values()
        # The catalogue lists no classes, so a new class looks like a class with an added field.
        needed = any(name in one.fields and one.fields[name].required for one in classes)
        return "field_of_class" if needed else "field_added"

    def _retyped(self, name: str, known: str, declared: str) -> str | None:
        codec = self._schema.column_codecs.get(name)
        stored_codec = self._stored.columns.get(name)
        same_column = codec is None or stored_codec is None or codec.name == stored_codec
        if known == declared and same_column:
            return None
        former, present = encrypted_type(known), encrypted_type(declared)
        if (former is None) != (present is None):
            rule = "field_decrypted" if present is None else "field_encrypted"
            raised = self._empty or self._schema.schema_version > self._stored.oldest
            return rule if raised else f"{rule}_unversioned"
        if former is not None and present is not None:
            known, declared = former, present
        if same_column and _members(known) <= _members(declared):
            return "field_widened"
        if self._upgrades(name):
            return "field_converted"
        indexed = any(name in retyped_columns(self._schema, index) for index in self._stored.maintained)
        return "column_retyped" if indexed else "field_widened" if self._empty else "field_retyped"

    # --- indexes ----------------------------------------------------------------------------------------------

    def of_indexes(self) -> Iterator[PlanStep]:
        for name, definition in self._schema.indexes.items():
            rule = self._index_rule(name, definition)
            if rule is not None:
                yield self._step(name, rule)
        for index in changed_effects(self._schema, self._stored):
            effects = f"{index.on_delete} -> {self._schema.indexes[index.name].on_delete}"
            yield self._step(index.name, "on_delete_changed", effects)
        undeclared = {index.name for index in self._stored.maintained} - self._schema.indexes.keys()
        for name in sorted(undeclared):
            yield self._step(name, "index_undeclared")
        dropping = {index.name for index in self._stored.indexes if index.state is IndexState.DROPPING}
        for name in sorted(dropping - undeclared):
            yield self._step(name, "index_dropping")

    def _index_rule(self, name: str, definition: IndexDefinition) -> str | None:
        digest = definition.hash()
        unkept = [index for index in unkept_generations(self._live, self._stored) if index.name == name]
        if not all(replaces(self._schema, self._stored, index) for index in unkept):
            return "index_superseded"
        if given_up_reference(self._schema, self._stored, name) is not None:
            return "reference_changed"
        if name in unenforced_references(self._schema, self._stored):
            return "reference_added"
        maintained = [index for index in self._stored.maintained if index.name == name]
        current = [index for index in maintained if index.hash == digest]
        states = {index.state for index in current}
        if states - {IndexState.READABLE}:
            return "index_pending" if IndexState.PENDING in states else "index_unfinished"
        if current:
            return "index_outdated" if needed_version(self._schema, definition) > self._stored.oldest else None
        if not maintained:
            return "index_unbuilt" if name in unbuilt_from_the_start(self._schema, self._stored) else "index_added"
        if is_retired(self._schema, self._stored, name):
            return "index_superseded"
        return "index_replaced" if unkept else "index_changed"

    # --- old versions -----------------------------------------------------------------------------------------

    def of_history(self) -> Iterator[PlanStep]:
        """Yield the difference of the declared history and the listed one."""
        declared, stored = self._schema.history, self._stored.history
        if stored is not None and stored.state == "dropping":
            yield self._step(None, "history_dropping")
        if declared is None:
            if stored is not None and stored.state != "dropping":
                yield self._step(None, "history_undeclared")
        elif stored is None or stored.state == "dropping":
            yield self._step(None, "history_added")
        elif not stored.is_declared_by(declared):
            yield self._step(None, "history_changed")
        elif not stored.readable:
            yield self._step(None, "history_unfinished")

    # --- records ----------------------------------------------------------------------------------------------

    def of_records(self) -> Iterator[PlanStep]:
        listed = self._stored.encryption
        if listed is not None and listed.waits_for(self._stored.oldest) and not self._empty:
            yield self._step(None, "encryption_unfinished")
        touched = [name for name, to in self._schema.touched.items() if to > self._stored.oldest]
        if touched and not self._empty:
            yield self._step(None, "records_outdated", ", ".join(sorted(touched)))


def encrypted_type(type_name: str) -> str | None:
    """Return the type of the plain values of an encrypted field; None for any other field.

    Examples:
        >>> encrypted_type("encrypted[str | None]"), encrypted_type("str")
        ('str | None', None)
    """
    is_encrypted = type_name.startswith("encrypted[") and type_name.endswith("]")
    return type_name[len("encrypted[") : -1] if is_encrypted else None


def _members(type_name: str) -> frozenset[str]:
    """Return the members of a union at the top of a type: ``dict[str, int | None] | None`` has two."""
    members, depth = [""], 0
    for letter in type_name:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and not depth:
            members.append("")
        else:
            members[-1] += letter
    return frozenset(member.strip() for member in members)


show_public_path(PlanStep, RefusedRecord, SchemaPlan)
