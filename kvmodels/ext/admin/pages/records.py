"""The pages of a collection: the list of its records, one record, and the forms that create, change and delete.

Rules of this module: a list reads one page of an index, or one bounded window; it never counts. A change carries the
version that the user has seen, so that a form changes nothing if the record has changed since.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import parse_qsl

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette_admin.flash import flash

from kvmodels.errors import (
    DoesNotExist,
    KvModelsError,
    NoUsableIndexError,
    OperationTooLargeError,
    StaleObjectError,
)
from kvmodels.ext.admin.backend import Backend
from kvmodels.ext.admin.browsing import SCANNED, BrowsedQuery
from kvmodels.ext.admin.downloads import FILE, file_response, file_text
from kvmodels.ext.admin.forms.fields import FormField, form_fields
from kvmodels.ext.admin.forms.record_form import (
    FieldState,
    changed_names,
    compare,
    digests_of,
    new_states,
    note_error,
    note_missing,
    sent_states,
    states_of,
    values_of,
)
from kvmodels.ext.admin.jobs import Job
from kvmodels.ext.admin.pages.cascades import cascade_rules, cascaded_records, require_rights
from kvmodels.ext.admin.pages.offers import Offers, conditions_on_groups, offers_of, ranked_searches, search_names
from kvmodels.ext.admin.pages.relations import referrers_of, target_choices
from kvmodels.ext.admin.pages.store_page import StorePage, link, page, records_path
from kvmodels.ext.admin.texts import value_text
from kvmodels.query.text_lookups import ORDER, parse_lookups
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.describe.describe import describe

SIZES: Final = (25, 50, 100)
_OWN: Final = frozenset({"after", "before", "size", "add", "value", "search"})
_FOUND: Final = 10
_MOST_COLUMNS: Final = 8


class RecordsPage(StorePage):
    """The pages of a collection.

    Args:
        backend: the database.
        model: the model class, or the first of several classes.
        collection: the name of the collection.
    """

    model: type[KvModel]

    def __init__(self, backend: Backend, model: type[KvModel], collection: str) -> None:
        super().__init__(
            backend, label=collection, icon="fa-solid fa-table-list", path=records_path(collection), model=model
        )
        self.collection = collection
        self.description = describe(model)
        self.key_names = [column.name for column in self.description.primary_key]
        self.fields = form_fields(model)
        self.key_fields = {field.name: field for field in self.fields if field.name in self.key_names}

    # --- lists -------------------------------------------------------------------------------------------------

    @page("")
    async def index(self, request: Request) -> Response:
        """Show a page of the records."""
        given = request.query_params.multi_items()
        query = dict(given)
        if query.get("add"):
            added = [
                *((name, text) for name, text in given if name not in _OWN and (name != ORDER or text)),
                (query["add"], query.get("value", "")),
            ]
            return self.redirect_to(request, [*added, ("size", query.get("size"))])
        size = _size(query.get("size"))
        within = conditions_on_groups(self.model, given)
        if query.get("search"):
            return await self._search(request, query["search"], within)
        parameters = [(name, text) for name, text in given if name not in _OWN and (name != ORDER or text)]
        browsed = BrowsedQuery(self.model, parameters)
        window = await browsed.window(self.backend, size, after=query.get("after"), before=query.get("before"))
        return self.render(
            request,
            "list.html",
            heading=self.collection,
            window=window,
            rows=[self.row(request, item) for item in window.items],
            columns=self.columns(),
            parameters=parameters,
            conditions=[
                (condition, self.list_url(request, [one for one in parameters if one != condition[:2]], size))
                for condition in browsed.conditions
            ],
            order=",".join(browsed.order),
            offers=await self.offers(),
            size=size,
            sizes=SIZES,
            scanned_at_most=SCANNED,
            next_url=self._neighbour(request, parameters, size, after=window.next_cursor),
            previous_url=self._neighbour(request, parameters, size, before=window.previous_cursor),
            first_url=self.list_url(request, parameters, size),
            sort_url=functools.partial(self._sort_url, request, parameters, size),
            classes=self.backend.classes(self.collection),
            search="",
            within=within,
        )

    async def offers(self) -> Offers:
        """Return the conditions and orders that the list offers. Cost: one read of the catalogue."""
        statuses = await self.backend.call(self.backend.db.indexes)
        readable = {one.index.name for one in statuses if one.collection == self.collection and one.state == "readable"}
        return offers_of(self.model, self.description, readable)

    async def _search(self, request: Request, text: str, within: Sequence[tuple[str, str]]) -> Response:
        """Show the records with this key or unique value, and those whose indexed text begins with it or has it.

        Words are searched in the order of scores, unless they have too many entries for that. ``within``: conditions on
        the groups of indexes of texts, which all records satisfy.
        """
        groups: list[dict[str, Any]] = []
        shown: set[str] = set()
        repository = self.backend.db[self.model].filter(parse_lookups(self.model, within).where)
        for name in search_names(self.model, self.description, [name for name, _ in within]):
            try:
                where = parse_lookups(self.model, [(name, text)]).where
            except KvModelsError:
                continue  # no value of this column
            try:
                records, has_more = await self._found_by(repository, name, text, where)
            except NoUsableIndexError:
                continue  # an index of parts of texts needs some characters
            rows = [self.row(request, record) for record in records]
            if not shown.issuperset(row["url"] for row in rows):
                shown.update(row["url"] for row in rows)
                url = link(self.url(request), [*within, (name, text)])
                groups.append({"name": name, "rows": rows, "url": url, "more": has_more})
        return self.render(
            request,
            "search.html",
            heading=f"Search: {text}",
            groups=groups,
            columns=self.columns(),
            search=text,
            within=within,
        )

    async def _found_by(self, repository: Any, name: str, text: str, where: Q) -> tuple[list[Any], bool]:
        """Return the first records that a lookup finds, and whether there are more."""
        index = ranked_searches(self.model, self.description).get(name)
        if index is not None:
            try:
                best = await self.backend.call(repository.search(index, text).page, size=_FOUND)
            except OperationTooLargeError:
                pass
            else:
                return [hit.record for hit in best.items], best.has_more
        found = await self.backend.call(repository.filter(where).page, size=_FOUND)
        return found.items, found.has_more

    def columns(self) -> list[str]:
        """Return the fields that lists show: the primary key first, then those of indexes, then others."""
        indexes = self.description.indexes
        indexed = [name for index in indexes for name in (*(column.name for column in index.columns), *index.fields)]
        names = [field.name for field in self.description.fields]
        ordered = [*self.key_names, *(name for name in indexed if name in names), *names]
        return list(dict.fromkeys(ordered))[:_MOST_COLUMNS]

    def row(self, request: Request, record: Any) -> dict[str, Any]:
        """Return a record for a table."""
        targets = {field.name: field.target for field in self.fields}
        cells = [self._cell(request, record, name, targets) for name in self.columns()]
        return {"cells": cells, "url": self.record_url(request, "", record), "key": self.key_query(record)}

    def _cell(self, request: Request, record: Any, name: str, targets: Mapping[str, str | None]) -> dict[str, Any]:
        """Return a field of a record for a page, with the page of the record that it refers to."""
        value = self.backend.value_of(record, name)
        if (text := file_text(value)) is not None:
            url = link(self.url(request, "/file"), {**self.key_query(record), FILE: name})
            return {"name": name, "value": text, "url": url}
        return {"name": name, "value": value, "url": self.reference_url(request, targets.get(name), value)}

    def list_url(self, request: Request, parameters: Sequence[tuple[str, str]], size: int) -> str:
        """Return the URL of the first page of a query."""
        return link(self.url(request), [*parameters, *([("size", size)] if size != SIZES[0] else [])])

    def _sort_url(self, request: Request, parameters: Sequence[tuple[str, str]], size: int, order: str) -> str:
        others = [one for one in parameters if one[0] != ORDER]
        return self.list_url(request, [*others, (ORDER, order)], size)

    def _neighbour(
        self, request: Request, parameters: Sequence[tuple[str, str]], size: int, **cursor: str | None
    ) -> str | None:
        [(name, position)] = cursor.items()
        if position is None:
            return None
        return link(self.url(request), [*parameters, ("size", size if size != SIZES[0] else None), (name, position)])

    def redirect_to(self, request: Request, parameters: Sequence[tuple[str, str | None]]) -> Response:
        """Send the browser to the list with these parameters."""
        response = self.redirect(request)
        response.headers["location"] = link(self.url(request), parameters)
        return response

    # --- one record --------------------------------------------------------------------------------------------

    @page("/record")
    async def record(self, request: Request) -> Response:
        """Show a record with its references."""
        record = await self._found(request)
        kind = class_of(record)
        targets = {field.name: field.target for field in form_fields(kind)}
        return self.render(
            request,
            "record.html",
            heading=self.key_text(record),
            record=record,
            kind=kind,
            values=[self._cell(request, record, name, targets) for name in kind.model_fields],
            referrers=referrers_of(self.backend, request, self.collection, record, self.key_names),
            edit_url=self.record_url(request, "/edit", record),
            key=self.key_query(record),
        )

    @page("/file")
    async def file(self, request: Request) -> Response:
        """Send the content of a blob as a download."""
        record = await self._found(request)
        return file_response(record, request.query_params.get(FILE, ""), f"{self.collection}-{self.key_text(record)}")

    @page("/new")
    async def new(self, request: Request) -> Response:
        """Show an empty form."""
        self.backend.require(request, "create", self.model)
        kind = self._class(request)
        fields = form_fields(kind)
        return await self._form(request, fields, new_states(fields, kind), kind=kind)

    @page("/new", posts=True)
    async def create(self, request: Request) -> Response:
        """Create a record."""
        self.backend.require(request, "create", self.model)
        kind = self._class(request)
        fields = form_fields(kind)
        states = sent_states(fields, await sent(request), is_new=True)
        values, valid = values_of(fields, states)
        problems: list[str] = []
        if valid:
            try:
                record = await self.backend.call(self.backend.db[kind].create, **values)
            except (KvModelsError, ValidationError) as error:
                problems = note_error(states, error, self.key_names)
            else:
                flash(request, f"Created {self.key_text(record)}.", "success")
                return self.redirect(request, "/record", **self.key_query(record))
        else:
            note_missing(states, kind, values, fields)
        return await self._form(request, fields, states, kind=kind, problems=problems, status=422)

    @page("/edit")
    async def edit(self, request: Request) -> Response:
        """Show the form of a record."""
        self.backend.require(request, "edit", self.model)
        record = await self._found(request)
        fields = self._editable(class_of(record))
        states = states_of(fields, record)
        return await self._form(
            request, fields, states, kind=class_of(record), record=record, digests=digests_of(states)
        )

    @page("/edit", posts=True)
    async def change(self, request: Request) -> Response:
        """Change a record, unless it was changed since the form was shown."""
        self.backend.require(request, "edit", self.model)
        form = await sent(request)
        record = await self._found(request)
        kind = class_of(record)
        fields = self._editable(kind)
        states, version = sent_states(fields, form), form.get("version")
        mine = changed_names(states, form.get("digests", ""))
        values, valid = values_of(fields, states, only=mine)
        problems: list[str] = []
        status = 422
        if record.versionstamp != version:
            status = 409
        elif valid:
            try:
                await self.backend.call(self.backend.db[kind].patch, self.key(record), if_version=version, **values)
            except StaleObjectError:
                record, status = await self._found(request), 409
            except (KvModelsError, ValidationError) as error:
                problems = note_error(states, error, self.key_names)
            else:
                flash(request, f"Saved {self.key_text(record)}.", "success")
                return self.redirect(request, "/record", **self.key_query(record))
        digests, differences = form.get("digests", ""), list[FieldState]()
        if status == 409:
            stored = states_of(fields, record)
            digests, differences = digests_of(stored), compare(states, stored, mine)
        return await self._form(
            request,
            fields,
            states,
            kind=kind,
            record=record,
            digests=digests,
            version=record.versionstamp if status == 409 else version,
            problems=problems,
            differences=differences,
            status=status,
        )

    # --- deletes -----------------------------------------------------------------------------------------------

    @page("/delete", posts=True)
    async def delete(self, request: Request) -> Response:
        """Ask before records are deleted, with all that goes with them; then delete them in a job."""
        self.backend.require(request, "delete", self.model)
        rules = await cascade_rules(self.backend, self.collection)
        require_rights(self.backend, request, rules)
        form = await request.form()
        keys = [str(text) for text in form.getlist("key")]
        everything, where = "everything" in form, str(form.get("where") or "")
        if not keys and not everything:
            flash(request, "Choose the records to delete.", "warning")
            return self.redirect(request)
        if "confirmed" not in form:
            removed = [] if everything else [self._key_of_line(text) for text in keys]
            cascaded = await cascaded_records(self.backend, rules, self.collection, removed)
            context: dict[str, Any] = {
                "keys": keys,
                "everything": everything,
                "where": where,
                "rules": rules,
                "cascaded": cascaded,
            }
            return self.render(request, "delete.html", heading="Delete", **context)
        if everything:
            parameters = parse_qsl(where, keep_blank_values=True)
            job = await self.backend.jobs.start(
                f"Delete all records of {self.collection}" + (f" with {where}" if where else ""),
                self.path,
                lambda job: self._delete_all(job, parameters),
            )
        else:
            job = await self.backend.jobs.start(
                f"Delete {len(keys)} of {self.collection}", self.path, lambda job: self._delete_some(job, keys)
            )
        return self.job_redirect(request, job)

    async def _delete_some(self, job: Job, keys: Sequence[str]) -> list[str]:
        removed, lines = 0, list[str]()
        for number, text in enumerate(keys, 1):
            try:
                removed += await self.backend.call(self.backend.db[self.model].remove, self._key_of_line(text))
            except KvModelsError as error:
                lines.append(f"{text}: {error}")
            job.check(f"{number:,} of {len(keys):,}", number / len(keys))
        return [f"{removed:,} of {len(keys):,} records deleted.", *lines]

    async def _delete_all(self, job: Job, parameters: Sequence[tuple[str, str]]) -> list[str]:
        query = self.backend.db[self.model].all().allow_scan()
        for name, text in parameters:
            if name != ORDER:
                query = query.filter(parse_lookups(self.model, [(name, text)]).where)
        done = await self.backend.call(query.delete, progress=job.report, on_error="collect")
        failed = [str(failure) for failure in done.failed]
        return [f"{done.written:,} of {done.matched:,} records deleted.", *failed]

    # --- keys and forms ----------------------------------------------------------------------------------------

    def key(self, record: Any) -> Any:
        """Return the primary key of a record, as the repository takes it."""
        values = tuple(getattr(record, name) for name in self.key_names)
        return values[0] if len(values) == 1 else values

    def key_query(self, record: Any) -> dict[str, str]:
        """Return the primary key of a record as parameters of a URL."""
        return {name: value_text(getattr(record, name)) for name in self.key_names}

    def key_text(self, record: Any) -> str:
        """Return the primary key of a record for a heading."""
        return ", ".join(value_text(getattr(record, name)) for name in self.key_names)

    def record_url(self, request: Request, suffix: str, record: Any) -> str:
        """Return the URL of a page of a record."""
        return self.url(request, suffix or "/record", **self.key_query(record))

    def reference_url(self, request: Request, target: str | None, value: Any) -> str | None:
        """Return the URL of the target of a foreign key; None if no page shows it."""
        model = None if target is None or value is None else self.backend.models.get(target)
        if model is None or not self.backend.allows(request, "view", model):
            return None
        [name, *others] = [column.name for column in describe(model).primary_key]
        place = f"{request.scope['root_path']}{records_path(describe(model).collection)}/record"
        return None if others else link(place, {name: value_text(value)})

    def job_redirect(self, request: Request, job: Job) -> Response:
        """Send the browser to the page of a job."""
        response = self.redirect(request)
        response.headers["location"] = link(f"{request.scope['root_path']}/jobs", id=job.id)
        return response

    def _key_of(self, texts: Mapping[str, str]) -> Any:
        """Return the primary key for parameters of a URL. Raises HTTPException 404: they are no primary key."""
        try:
            values = tuple(self.key_fields[name].value(texts[name]) for name in self.key_names)
        except (KeyError, ValueError) as error:
            raise HTTPException(404, f"This is not a primary key of {self.collection}.") from error
        return values[0] if len(values) == 1 else values

    def _key_of_line(self, text: str) -> Any:
        return self._key_of(dict(parse_qsl(text, keep_blank_values=True)))

    async def _found(self, request: Request) -> Any:
        key = self._key_of(dict(request.query_params))
        try:
            return await self.backend.call(self.backend.db[self.model].get, key)
        except DoesNotExist as error:
            raise HTTPException(404, f"{self.collection} has no record with this primary key.") from error

    def _class(self, request: Request) -> type[KvModel]:
        wanted = request.query_params.get("class")
        classes = {model.__name__: model for model in self.backend.classes(self.collection)}
        return classes.get(wanted or "", self.model)

    def _editable(self, kind: type[KvModel]) -> tuple[FormField, ...]:
        left_out = {*self.key_names, *self.backend.hidden_fields(kind)}
        return tuple(field for field in form_fields(kind) if field.name not in left_out)

    async def _form(
        self,
        request: Request,
        fields: Sequence[FormField],
        states: Mapping[str, FieldState],
        *,
        kind: type[KvModel],
        record: Any = None,
        digests: str = "",
        version: str | None = None,
        problems: Sequence[str] = (),
        differences: Sequence[FieldState] | None = None,
        status: int = 200,
    ) -> Response:
        return self.render(
            request,
            "form.html",
            status=status,
            heading=f"New {kind.__name__}" if record is None else f"Edit {self.key_text(record)}",
            fields=fields,
            states=states,
            kind=kind,
            record=record,
            digests=digests,
            version=version or getattr(record, "versionstamp", None),
            problems=problems,
            overtaken=status == 409,
            differences=differences or (),
            choices=await target_choices(self.backend, request, fields),
            action=str(request.url.path) + (f"?{request.url.query}" if request.url.query else ""),
            key_url=None if record is None else self.record_url(request, "", record),
        )


def class_of(record: Any) -> type[KvModel]:
    """Return the model class of a record."""
    return cast("type[KvModel]", type(record))


async def sent(request: Request) -> dict[str, str]:
    """Return the fields of a form that a browser sent."""
    return {name: value for name, value in (await request.form()).multi_items() if isinstance(value, str)}


def _size(text: str | None) -> int:
    return next((size for size in SIZES if str(size) == text), SIZES[0])
