"""Errors for refused queries: the reason why no index serves a query, and a line of code that adds one.

The columns of a suggested index are those with one value or a list of values, then those of the order; without an
order, a column with a range comes last.

Rules of this module: pure. Only names of fields, lookups and indexes are shown, never operands. A suggested line can be
pasted: then the query is served, or the next alternative is suggested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from kvmodels.catalog.catalogue import IndexState
from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.encryption import other_index_key
from kvmodels.catalog.unknown import unknown_declared
from kvmodels.errors import IndexNotReadyError, NoUsableIndexError, SchemaMismatchError
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.query.orders import order_names
from kvmodels.query.planning.accesses import (
    AccessDemands,
    Directions,
    accesses,
    index_path,
    missing_entries,
    paths_of,
    unbound_group,
)
from kvmodels.query.planning.branches import (
    MAX_BRANCHES,
    MAX_PRODUCT,
    Branch,
    BranchShape,
    ColumnTerm,
    FilterParts,
    Guarantee,
    QueryShape,
    Term,
    partials_of,
    shape_of,
)
from kvmodels.query.planning.combining import decide
from kvmodels.query.planning.kind_terms import KindTerm
from kvmodels.query.planning.narrowing import is_stated, narrowing_indexes
from kvmodels.query.query import Query
from kvmodels.schema.declare.declarations import declaration_text
from kvmodels.schema.definition.definition import IndexDefinition, ModelSchema
from kvmodels.schema.definition.kinds import KINDS
from kvmodels.schema.filters.field_operands import OF_FIELDS
from kvmodels.schema.filters.kind_lookups import OF_KIND
from kvmodels.schema.filters.operands import PRIMARY_KEY
from kvmodels.schema.filters.predicate import Condition, conditions_of


class Suggestion(NamedTuple):
    """A suggested index for a model.

    Attributes:
        text: "add …", with the code.
        conflict: a field with a range, and the field that the order begins with: no index serves both.
    """

    text: str
    conflict: tuple[str, str] | None = None


def suggested(schema: ModelSchema, branch: Branch, order: Directions) -> Suggestion | None:
    """Return the index for a branch in an order; None if no index can serve it."""
    terms = _Terms(branch)
    if order:
        return _in_order(schema, terms, order)
    bound = [term.field for term in terms.lists]
    if bound and not terms.elements:
        bound += [term.field for term in terms.ranges[:1]]
    elif not bound and terms.first is not None:
        bound = [terms.first.field]
    return _adding(schema, [(field, False) for field in bound])


def _in_order(schema: ModelSchema, terms: _Terms, order: Directions) -> Suggestion | None:
    wanted = _without_key(schema, order, {term.field for term in terms.lists if is_one(term)})
    ordered = {field for field, _ in wanted}
    bound = [term.field for term in terms.lists if term.field not in ordered or is_one(term)]
    if not bound:
        bound = [term.field for term in terms.elements if _is_list(term)][:1]
    rest = tuple((field, down) for field, down in wanted if field not in bound)
    columns = (*((field, False) for field in bound), *rest)
    if not bound and terms.first is None and terms.tested:
        return None
    leading = {term.field for term in (*terms.lists, *terms.ranges, *terms.wide)}
    if bound or terms.first is None or (rest and rest[0][0] in leading):
        return _adding(schema, columns)
    return Suggestion(_addition(schema, rest or order), (terms.first.field, order[0][0]))


class _Terms:
    """The terms of an alternative, by how an index can use them."""

    def __init__(self, branch: Branch) -> None:
        # No index of columns answers the lookups of another kind.
        columns = [term for term in branch.terms if isinstance(term, ColumnTerm)]
        single = [term for term in columns if not term.many]
        self.lists = [term for term in single if term.narrows and _is_list(term)]
        self.ranges = [term for term in single if term.narrows and term not in self.lists]
        # A term that excludes only single values is served only if nothing else is left to test.
        self.wide = [term for term in single if not term.narrows and len(term.at) == len(branch.parts)]
        elements = [term for term in columns if term.many and (term.narrows or len(branch.parts) == 1)]
        self.elements = sorted(elements, key=_is_list, reverse=True)
        self.tested = bool(branch.parts)

    @property
    def first(self) -> ColumnTerm | None:
        """Return the best term for the first column of an index."""
        by_element = self.elements[:1]
        listed = [term for term in by_element if _is_list(term)]
        return next(iter((*self.lists, *listed, *self.ranges, *by_element, *self.wide)), None)


def _adding(schema: ModelSchema, columns: Sequence[tuple[str, bool]]) -> Suggestion | None:
    return Suggestion(_addition(schema, columns)) if columns else None


def _is_list(term: Term) -> bool:
    return all(span.point for span in term.compared)


def is_one(term: Term) -> bool:
    """Return whether a term leaves one value."""
    return len(term.compared) == 1 and term.compared[0].point


def _without_key(schema: ModelSchema, order: Directions, equal: set[str]) -> Directions:
    """Return the order without the primary key at its end, which every index supplies after its columns."""
    keys = [column.field for column in schema.primary_key if column.field not in equal]
    wanted = dict[str, bool]()
    for field, down in order:
        if all(key in wanted for key in keys):
            break
        if field not in equal:
            wanted.setdefault(field, down)
    steps = list(wanted.items())
    for at in range(len(steps)):
        rest = steps[at:]
        turns = {down for _, down in rest}
        plain = turns == {False} or (at == 0 and len(turns) == 1)
        if plain and [field for field, _ in rest] == keys[: len(rest)]:
            return tuple(steps[:at])
    return tuple(steps)


def _addition(schema: ModelSchema, columns: Sequence[tuple[str, bool]]) -> str:
    # Never "declare the field as Indexed[...]": that line would drop the default and other options of the field.
    names = [f"{'-' if descending else ''}{name}" for name, descending in columns]
    default = "_".join(field.replace(".", "_") for field, _ in columns)
    return f"add {index_to_add(schema, 'Index', names, default)} to the indexes of {schema.name}.Meta"


def index_to_add(
    schema: ModelSchema, declared: str, fields: Iterable[str], default: str, options: Mapping[str, object] | None = None
) -> str:
    """Return the declaration of another index; it has a name if ``default``, the name without one, is taken."""
    given, name, number = dict(options or {}), default, 1
    while name in schema.indexes:
        number += 1
        name = given["name"] = f"{default}_{number}"
    return declaration_text(declared, fields, given).replace("'", '"')


_EVERYTHING = BranchShape((), (), None, ())


def filter_lookups(query: Query) -> tuple[str, ...]:
    """Return the lookups of a filter as keywords, without operands."""
    conditions = (condition for part in query.where for condition in conditions_of(part) if is_stated(condition))
    return tuple(dict.fromkeys(map(_lookup, conditions)))


def _lookup(condition: Condition) -> str:
    lookup: str = condition.lookup
    if lookup == OF_KIND:
        return f"{condition.field}__{condition.operand.lookup}"
    if lookup == OF_FIELDS:
        lookup = condition.operand.lookup
    if condition.any:
        lookup = {"exact": "contains", "in": "contains_any"}.get(lookup, f"any__{lookup}")
    elif lookup == "exact":
        return condition.field
    return f"{condition.field}__{lookup}"


def described_index(index: IndexDefinition) -> str:
    """Return an index in a list of the indexes of a model."""
    columns = ", ".join(f"{'-' if column.descending else ''}{column.field}" for column in index.columns)
    described = index.name if columns in (index.name, "") else f"{index.name} on {columns}"
    extra = [
        word
        for word, holds in (
            ("unique", index.unique),
            ("without None", index.skips_none),
            ("partial", index.where is not None),
            ("several values", index.fans_out),
            (ACCESS[index.kind].shown or "", ACCESS[index.kind].shown is not None),
        )
        if holds
    ]
    return described + (f" ({', '.join(extra)})" if extra else "")


def text_index_advice(schema: ModelSchema, conditions: Sequence[Condition]) -> str | None:
    """Return how an index of a kind would serve conditions on texts; None if it cannot serve one of them."""
    lines: list[str] = []
    for condition in conditions:
        kind = next((KINDS[one] for one in KINDS if condition.lookup in KINDS[one].narrowed), None)
        source = schema.source(condition.field)
        line = None if kind is None else kind.line(condition.field)
        if kind is None or line is None or condition.negated or source is None or source.codec.name != "str":
            continue
        if narrowing_indexes(schema, condition):
            if not kind.implied(condition.lookup, condition.operand)[1]:
                return kind.why_no_entry(condition.field)
        else:
            lines.append(line)
    return f"Add {' and '.join(dict.fromkeys(lines))} to the indexes of {schema.name}.Meta" if lines else None


class _Refusal:
    """Finds the missing index."""

    def __init__(self, query: Query, live: LiveCollection, shape: QueryShape) -> None:
        self._query = query
        self._live = live
        self._shape = shape
        self._scan = f"call .allow_scan() to read all of {query.schema.collection!r}"

    def hint(self, stem: Branch, branches: Sequence[Branch] | None) -> str:
        """Return the advice."""
        if self._query.using is not None:
            return self._forced(self._query.using)
        if branches is None:
            return (
                f"The filter has more than {MAX_BRANCHES} alternatives: write those about one field as one list, "
                f"add a condition that an index answers, or {self._scan}."
            )
        return self._of(*(self._unserved(branches) or (stem, self._shape.stem)))

    def _is_served(self, branch: BranchShape, order: Directions) -> bool:
        shape = self._shape._replace(stem=branch, branches=(branch,), order=order, scans=False, sorts=False)
        return decide(self._query.schema, shape, paths_of(self._live, shape)) is not None

    def _unserved(self, branches: Sequence[Branch]) -> tuple[Branch, BranchShape] | None:
        """Return the first alternative without an index; if all have one, the first without the order."""
        for order in ((), self._shape.order):
            for branch, shape in zip(branches, self._shape.branches or (), strict=True):
                if not self._is_served(shape, order):
                    return branch, shape
        return None

    def _sorting(self) -> str | None:
        """Return the permission that is enough if only the order is missing."""
        shape = self._shape._replace(order=(), reverse=False, sorts=False)
        if not self._shape.order or decide(self._query.schema, shape, paths_of(self._live, shape)) is None:
            return None
        return "call .sort_in_memory(limit=…) to sort the results"

    def _of(self, branch: Branch, shape: BranchShape) -> str:
        query = self._query
        sorting = self._sorting()
        if query.target_order:
            return self._of_targets(branch, sorting)
        suggestion = suggested(query.schema, branch, query.directions)
        otherwise = sorting or (None if query.scan_allowed else self._scan)
        if sorting is not None and any(isinstance(term, KindTerm) for term in branch.terms):
            return f"C{sorting[1:]}."  # an index with the order would not answer the lookup
        crowded = self._crowded(branch, shape)
        if crowded is not None:
            return f"{crowded}: give fewer values, or {otherwise or self._scan}."
        missing = self._conditional(shape) or self._ungrouped(branch, shape)
        if suggestion is None:
            unindexed = self._unindexed(branch, otherwise)
            return unindexed if missing is None else f"{missing}: filter by that as well, or {otherwise or self._scan}."
        if suggestion.conflict is not None:
            return self._conflict(suggestion.text, suggestion.conflict, branch, sorting)
        addition = suggestion.text if otherwise is None else f"{suggestion.text}, or {otherwise}"
        if missing is not None:
            return f"{missing}: filter by that as well. Otherwise {addition}."
        return f"{addition[0].upper()}{addition[1:]}."

    def _of_targets(self, branch: Branch, sorting: str | None) -> str:
        """Return the advice for an order by fields of targets, which is always a sort."""
        if sorting is not None:
            return f"C{sorting[1:]}."
        by_itself = suggested(self._query.schema, branch, ())
        ways = [None if by_itself is None else by_itself.text, None if self._query.scan_allowed else self._scan]
        sort = "" if self._query.sort_limit is not None else " and call .sort_in_memory(limit=…)"
        text = ", or ".join(f"{way}{sort}" for way in ways if way)
        return f"{text[0].upper()}{text[1:]}."

    def _ungrouped(self, branch: Branch, shape: BranchShape) -> str | None:
        """Return the index whose lookup would serve the alternative if the filter bound its group."""
        for definition in self._of_kinds(branch):
            group = unbound_group(definition, shape)
            if group:
                return f"The index {definition.name!r} needs one value, or a list, of {', '.join(map(repr, group))}"
        return None

    def _crowded(self, branch: Branch, shape: BranchShape) -> str | None:
        """Return the index whose lookup would serve the alternative if its lists had fewer values."""
        sizes = {term.field: len(term.compared) for term in branch.terms if not isinstance(term, KindTerm)}
        for definition in self._of_kinds(branch):
            groups = prod(sizes.get(column.field, 1) for column in definition.columns)
            if groups > MAX_PRODUCT and not unbound_group(definition, shape):
                return (
                    f"The index {definition.name!r} is read for at most {MAX_PRODUCT:,} groups, and not for {groups:,}"
                )
        return None

    def _of_kinds(self, branch: Branch) -> Iterable[IndexDefinition]:
        """Yield the readable indexes with the lookups of an alternative."""
        names = {term.field for term in branch.terms if isinstance(term, KindTerm)}
        for index in self._live.readable.values() if names else ():
            parts = ACCESS[index.definition.kind].parts(index.definition)
            if parts and parts[0].field in names:
                yield index.definition

    def _conditional(self, shape: BranchShape) -> str | None:
        """Return the partial index that would serve the alternative if the filter implied its condition."""
        for index in self._live.readable.values():
            definition = index.definition
            if definition.where is None or any(one.name == definition.name for one in shape.partials):
                continue
            said = shape._replace(partials=(*shape.partials, Guarantee(definition.name, (), narrows=False)))
            if self._is_served(said, self._shape.order):
                return f"The index {definition.name!r} has only records with {definition.where.text}"
        return None

    def _conflict(self, addition: str, fields: tuple[str, str], branch: Branch, sorting: str | None) -> str:
        ranged, ordered = fields
        source = self._query.schema.source(ranged)
        ways = [] if source is None or source.many else [f"order by {ranged!r} first"]
        by_itself = None if sorting else suggested(self._query.schema, branch, ())
        if by_itself is not None:
            sorting = f"{by_itself.text} and call .sort_in_memory(limit=…)"
        ways += [way for way in (self._scanning(addition), sorting) if way]
        return f"No index gives a range of {ranged!r} in the order of {ordered!r}: {', or '.join(ways)}."

    def _scanning(self, addition: str | None) -> str:
        """Return the calls that read everything in the requested order."""
        missing = None if self._is_served(_EVERYTHING, self._shape.order) else addition
        scan = None if self._query.scan_allowed else self._scan
        return " and ".join(step for step in (missing, scan) if step)

    def _unindexed(self, branch: Branch, otherwise: str | None) -> str:
        conditions = [condition for part in branch.parts for condition in conditions_of(part)]
        if not conditions:
            return f"Otherwise {otherwise or self._scan}."
        columns = _without_key(self._query.schema, self._query.directions, set())
        way = self._scanning(_addition(self._query.schema, columns) if columns else None)
        fields = ", ".join(dict.fromkeys(repr(condition.field) for condition in conditions))
        compared = [one for one in conditions if one.field != PRIMARY_KEY and one.lookup != OF_KIND]
        advice = text_index_advice(self._query.schema, compared)
        if advice is not None and not columns:
            return f"{advice}, or {way}."
        if all(self._query.schema.source(condition.field) is not None for condition in compared):
            return f"No index answers such a comparison of {fields}: {way}."
        return f"The type of {fields} cannot be indexed: {way}."

    # --- using_index ------------------------------------------------------------------------------------------

    def _forced(self, name: str) -> str:
        title = "The primary key" if name == PRIMARY_KEY else f"The index {name!r}"
        reason = self._why_not(self._query.schema.indexes.get(name))
        return f"{title} cannot serve it: {reason}. Leave out using_index() to let the planner choose."

    def _why_not(self, definition: IndexDefinition | None) -> str:
        for shape in self._shape.branches or (self._shape.stem,):
            reason = None if definition is None else missing_entries(definition, shape)
            reason = reason or self._unusable(shape)
            if reason is not None:
                return reason
        return "its alternatives do not come in one order"

    def _unusable(self, shape: BranchShape) -> str | None:
        paths = paths_of(self._live, self._shape)
        ordered = AccessDemands.of(self._query.schema, self._shape)
        found = accesses(ordered, paths, shape)
        if any(access.permitted for access in found):
            return None
        loose = accesses(AccessDemands.of(self._query.schema, self._shape, ordered=False), paths, shape)
        if not found and loose:
            return "it does not supply the requested order"
        return "the filter binds none of its columns from the left, so all of it would be read"


# --- indexes that are not ready --------------------------------------------------------------------------------


def refusal(query: Query, live: LiveCollection, shape: QueryShape, alternatives: FilterParts) -> Exception:
    """Return the error for a query without a plan: an index that would serve it is not built, or there is none."""
    if shape.within is None:
        name = _unready(query, live, alternatives)
        if name is not None:
            return not_readable("the index that would serve this query is not readable", query, live, name)
    indexes = (index for index in query.schema.indexes.values() if index.name in live.readable)
    return NoUsableIndexError(
        "no index serves this query",
        model=query.schema.name,
        filters=filter_lookups(query),
        order=order_names(query.directions),
        candidates=("primary key", *map(described_index, indexes)),
        hint=_Refusal(query, live, shape).hint(*alternatives),
    )


def _unready(query: Query, live: LiveCollection, alternatives: FilterParts) -> str | None:
    """Return the name of the first unreadable index that would serve the query."""
    waiting = [
        (definition, path)
        for name, definition in live.schema.indexes.items()
        if name in live.states
        and query.using in (None, name, definition.declared_name)
        and (path := index_path(live, definition, b"", 0)) is not None
    ]
    if not waiting:
        return None
    partials = [*partials_of(live), *(definition for definition, _ in waiting if definition.where is not None)]
    shape = shape_of(query, *alternatives, partials, None)
    paths = [*paths_of(live, shape), *(path for _, path in waiting)]
    decision = decide(query.schema, shape, paths)
    used = [step.access.path.name for step in decision.steps] if decision else []
    return next((name for name in used if name in live.states), None)


def not_readable(
    message: str, query: Query, live: LiveCollection, index: str, *, by_scan: bool = True
) -> IndexNotReadyError | SchemaMismatchError:
    """Return the error for an index that is not readable; ``by_scan``: a scan could answer the query instead."""
    if live.states[index] is IndexState.UNKNOWN:
        return unknown_declared(live.schema, index)
    other_key = other_index_key(live.schema, live.encryption, live.schema.indexes[index])
    if other_key is not None:
        return other_key
    hint = _advice(live, index, by_scan=by_scan)
    return IndexNotReadyError(message, model=query.schema.name, index=index, state=live.states[index].value, hint=hint)


def _advice(live: LiveCollection, name: str, *, by_scan: bool) -> str | None:
    state = live.states[name]
    if name in live.replaced:
        scan = ", or call .allow_scan() to read all records" if by_scan else ""
        return f"Another release has replaced this index: run that release{scan}."
    if state is IndexState.PENDING and by_scan:
        return "Resolve the violations of the index and run db.apply() again, or call .allow_scan()."
    if state is IndexState.SUPERSEDED:
        return "A newer release has changed the records of the index: run that release."
    if state is IndexState.OUTDATED or live.unraised:
        scan = ", or call .allow_scan() until then" if by_scan else ""
        return f"Run db.apply(), which rewrites the records that an upgrade changes{scan}."
    if not by_scan:
        return None
    build = "Run db.apply(), or call .allow_scan() to read all records until then."
    if state is IndexState.DISABLED:  # the store does not distinguish a new index from a dropped one
        return f"{build} If a newer release has dropped the index, run that release instead."
    return build
