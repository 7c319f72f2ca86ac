"""The pages of a collection whose records have a history: the versions of a record, and the removed records.

Rules of this module: a list reads one page of versions. A revert carries the version that the user has seen, so that
it changes nothing if the record has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette_admin.flash import flash

from kvmodels._support.secret_values import HIDDEN
from kvmodels.errors import DoesNotExist, KvModelsError, StaleObjectError
from kvmodels.ext.admin.backend import AdminAction
from kvmodels.ext.admin.differences import Difference, difference
from kvmodels.ext.admin.forms.record_form import (
    FieldState,
    changed_names,
    digests_of,
    note_error,
    sent_states,
    states_of,
    values_of,
)
from kvmodels.ext.admin.pages.cascades import cascade_rules
from kvmodels.ext.admin.pages.records import RecordsPage, class_of, sent
from kvmodels.ext.admin.pages.relations import target_choices
from kvmodels.ext.admin.pages.store_page import page
from kvmodels.ext.admin.texts import value_text
from kvmodels.flows.history.restoring import Restored
from kvmodels.flows.history.versions import Revision

_VERSIONS: Final = 20
_REMOVED: Final = 50
_REDONE: Final[dict[AdminAction, AdminAction]] = {"delete": "create", "edit": "edit"}
"""The right that is needed to take back an effect of a removal."""


class HistoryPages(RecordsPage):
    """The pages of a collection with a history."""

    keeps_history: Final = True

    # --- versions ----------------------------------------------------------------------------------------------

    @page("/history")
    async def history(self, request: Request) -> Response:
        """Show the versions of a record, newest first."""
        return await self._history(request)

    @page("/revert", posts=True)
    async def revert(self, request: Request) -> Response:
        """Write the values of an old version, unless the record has changed since its history was shown."""
        self.backend.require(request, "edit", self.model)
        form = await sent(request)
        key, texts = self._key_of(dict(request.query_params)), self._key_texts(request)
        repository = self.backend.db[self.model]
        try:
            await self.backend.call(
                repository.revert, key, form.get("begin", ""), if_version=form.get("version") or None
            )
        except StaleObjectError:
            return await self._history(request, "The record has changed since you opened its history.", status=409)
        except (KvModelsError, ValidationError) as error:
            return await self._history(request, str(error), status=422)
        flash(request, f"Reverted {', '.join(texts.values())}.", "success")
        return self.redirect(request, "/record", **texts)

    async def _history(self, request: Request, problem: str | None = None, *, status: int = 200) -> Response:
        texts, after = self._key_texts(request), request.query_params.get("after")
        repository, key = self.backend.db[self.model], self._key_of(texts)
        record = await self.backend.call(repository.get_or_none, key)
        found = await self.backend.call(repository.history(key).page, _VERSIONS, after)
        return self.render(
            request,
            "history.html",
            status=status,
            heading=", ".join(texts.values()),
            revisions=[(one, self._differences(one)) for one in found.items],
            is_insert=self._is_insert,
            record=record,
            key=texts,
            problem=problem,
            older_url=found.next_cursor and self.url(request, "/history", **texts, after=found.next_cursor),
        )

    def _differences(self, revision: Revision[Any]) -> list[Difference]:
        """Return the fields that a version has changed; all fields if the version before it is not kept."""
        if revision.changes is not None:
            return [self._difference(name, *pair) for name, pair in revision.changes.items()]
        values: Mapping[str, Any] = {} if revision.record is None else revision.record.__dict__
        return [self._difference(name, None, value) for name, value in values.items()]

    def _difference(self, name: str, before: Any, after: Any) -> Difference:
        if name not in self.backend.hidden_fields(self.model):
            return difference(name, before, after)
        return difference(name, *(None if value is None else HIDDEN for value in (before, after)))

    def _is_insert(self, revision: Revision[Any]) -> bool:
        return revision.changes is not None and self.key_names[0] in revision.changes

    def _key_texts(self, request: Request) -> dict[str, str]:
        return {name: request.query_params.get(name, "") for name in self.key_names}

    # --- removed records ---------------------------------------------------------------------------------------

    @page("/trash")
    async def trash(self, request: Request) -> Response:
        """Show the last versions of removed records."""
        after = request.query_params.get("after")
        found = await self.backend.call(self.backend.db[self.model].trash().page, _REMOVED, after)
        columns = self.columns()
        return self.render(
            request,
            "trash.html",
            heading=f"Trash of {self.collection}",
            columns=columns,
            rows=[self._removed_row(one, columns) for one in found.items],
            next_url=found.next_cursor and self.url(request, "/trash", after=found.next_cursor),
        )

    def _removed_row(self, revision: Revision[Any], columns: Sequence[str]) -> dict[str, Any]:
        keys: Sequence[Any] = (revision.key,) if len(self.key_names) == 1 else revision.key
        names = dict(zip(self.key_names, keys, strict=True))
        values = names if revision.record is None else revision.record.__dict__
        key = {name: value_text(value) for name, value in names.items()}
        hidden = self.backend.hidden_fields(self.model)
        cells = [HIDDEN if name in hidden and values.get(name) is not None else values.get(name) for name in columns]
        return {"key": key, "revision": revision, "cells": cells}

    @page("/restore", posts=True)
    async def restore(self, request: Request) -> Response:
        """Insert a removed record again; a value that is refused can be changed in a form."""
        self.backend.require(request, "create", self.model)
        form = await sent(request)
        also = "also" in form
        if also:
            await self._require_rights_of_others(request)
        texts = self._key_texts(request)
        key = self._key_of(texts)
        revision = await self._removed(key)
        assert revision.record is not None, "it has no error"
        fields = self._editable(class_of(revision.record))
        states, changes, valid = states_of(fields, revision.record), dict[str, Any](), True
        digests = digests_of(states)
        if "digests" in form:
            states = sent_states(fields, form)
            changes, valid = values_of(fields, states, only=changed_names(states, form["digests"]))
        problems: list[str] = []
        if valid:
            try:
                done = await self.backend.call(self.backend.db[self.model].restore, key, changes or None, also=also)
            except DoesNotExist:
                raise
            except (KvModelsError, ValidationError) as error:
                problems = note_error(states, error, self.key_names)
            else:
                flash(request, _restored(texts, done), "success")
                return self.redirect(request, "/record", **texts)
        return await self._restore_form(request, revision, states, digests=digests, problems=problems, also=also)

    async def _restore_form(
        self,
        request: Request,
        revision: Revision[Any],
        states: Mapping[str, FieldState],
        *,
        digests: str,
        problems: Sequence[str],
        also: bool,
    ) -> Response:
        kind = class_of(revision.record)
        fields = self._editable(kind)
        texts = self._key_texts(request)
        return self.render(
            request,
            "form.html",
            status=422,
            heading=f"Restore {', '.join(texts.values())}",
            fields=fields,
            states=states,
            kind=kind,
            record=revision.record,
            digests=digests,
            version=None,
            problems=problems,
            overtaken=False,
            differences=(),
            choices=await target_choices(self.backend, request, fields),
            action=self.url(request, "/restore", **texts),
            key_url=self.url(request, "/trash"),
            restores=True,
            also=also,
        )

    async def _removed(self, key: Any) -> Revision[Any]:
        """Return the last version of a removed record. Raises HTTPException 404, or the error of its document."""
        found = await self.backend.call(self.backend.db[self.model].history(key).page, 1)
        if not found.items or found.items[0].ended is None:
            raise HTTPException(404, f"{self.collection} has no removed record with this primary key.")
        revision: Revision[Any] = found.items[0]
        if revision.error is not None:
            raise revision.error
        return revision

    async def _require_rights_of_others(self, request: Request) -> None:
        """Raise HTTPException 403 if the user may not take back everything that a removal can have done."""
        for rule in await cascade_rules(self.backend, self.collection):
            if not self.backend.allows(request, _REDONE[rule.action], self.backend.models.get(rule.collection)):
                effect = "be restored" if rule.action == "delete" else f"get back their {rule.field}"
                raise HTTPException(403, f"Records of {rule.collection} would {effect} with it, which is not allowed.")


def _restored(texts: Mapping[str, str], done: Any) -> str:
    text = f"Restored {', '.join(texts.values())}"
    if not isinstance(done, Restored):
        return f"{text}."
    left_out = [f"{one.collection} {value_text(one.key)} ({one.reason})" for one in done.left_out]
    others = f"{text} and {done.others} other {'record' if done.others == 1 else 'records'}."
    return f"{others} Left out: {', '.join(left_out)}." if left_out else others
