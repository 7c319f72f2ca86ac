"""Declarations, context, reserved keys and life-cycle flows of a database, for both APIs.

Rules of this module: nothing here runs a flow or depends on an event loop. The context exists once the engine is open.
"""

from __future__ import annotations

import copy
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast, get_args
from uuid import uuid4

from kvmodels._support.naming import short_repr
from kvmodels._support.turns import Turns
from kvmodels.api import schema_arguments
from kvmodels.api.opening import Opening, require_storable, store_format
from kvmodels.api.reserved_parts import ReservedParts
from kvmodels.api.sides import refuse_references_across, refuse_shared_models, wrong_side
from kvmodels.catalog import evolution
from kvmodels.catalog.catalogue import Header
from kvmodels.catalog.collection import record_layout
from kvmodels.codecs.sealing.key_ring import KeyCache, KeyProvider, require_id
from kvmodels.engines.contract import Engine
from kvmodels.errors import ClosedError, InvalidArgumentError, ModelDefinitionError, UnsupportedError
from kvmodels.flows import tenant_schemas, tenants
from kvmodels.flows.arguments import items_of, require_flag, require_text
from kvmodels.flows.bulk import options_and_results as bulk_options
from kvmodels.flows.check import blobs as blob_content
from kvmodels.flows.check import counters, findings, scrub
from kvmodels.flows.check import store as store_check
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow
from kvmodels.flows.evolution import apply as plan_apply
from kvmodels.flows.evolution import build, drop_collection, drop_index, rotation
from kvmodels.flows.evolution import header as stored_header
from kvmodels.flows.evolution import migrate as migrate_flows
from kvmodels.flows.evolution import violations as listing
from kvmodels.flows.evolution.throttle import SAMPLE, UNPACED, Pace
from kvmodels.flows.kv.formats import DumpFormat, Progress, require_dump_options
from kvmodels.flows.retry_policy import DEFAULT_RETRY, RetryPolicy
from kvmodels.flows.scans import ScanPolicy, Scans
from kvmodels.flows.signals import Signals, TenantSignals
from kvmodels.flows.transfer import dump as record_dump
from kvmodels.flows.transfer import dumped_lines
from kvmodels.flows.transfer import load as record_load
from kvmodels.flows.writing import tokens
from kvmodels.query.query import Query
from kvmodels.runtime.observing import counters as counting
from kvmodels.runtime.observing import observation as observing
from kvmodels.schema import binding
from kvmodels.schema.blobs.blob import BlobHome
from kvmodels.schema.compile.links import link_models
from kvmodels.schema.compile.polymorphic import collection_schema, root_of, view_of
from kvmodels.schema.compile.targets import resolved_targets
from kvmodels.schema.definition.definition import ModelSchema

_INDEX_HINT = "Give the name of an index, as explain() and db.check() show it."


def file_sizes(engine: Engine) -> dict[str, int]:
    """Return the size in bytes of each file of a store by path, or of each table by name; empty in memory."""
    sizes_of_tables = engine.capabilities.server.sizes
    sizes = {} if sizes_of_tables is None else sizes_of_tables()
    for path in engine.capabilities.files:
        with suppress(FileNotFoundError):
            sizes[path] = os.path.getsize(path)
    return sizes


class DatabaseCore:
    """The declarations of one database handle, and the flows of its life cycle.

    ``new_token``, ``monotonic`` (seconds), ``uniform`` and ``random_bytes`` are injected by tests.
    """

    def __init__(
        self,
        models: Iterable[type[Any]],
        *,
        tenant_models: Iterable[type[Any]] = (),
        retry: RetryPolicy = DEFAULT_RETRY,
        readonly: bool = False,
        must_be_current: bool = False,
        codec: str = "msgpack",
        scans: Scans = "refuse",
        keys: KeyProvider | None = None,
        new_token: Callable[[], str] = lambda: uuid4().hex,
        monotonic: Callable[[], float] = time.monotonic,
        uniform: Callable[[], float] = random.random,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        for argument, flag in (("readonly", readonly), ("require_current", must_be_current)):
            require_flag(argument, flag)
        if not isinstance(cast("object", retry), RetryPolicy):
            raise InvalidArgumentError(
                "this is not a retry policy",
                argument="retry",
                value=retry,
                hint="Give one, such as RetryPolicy(attempts=10).",
            )
        self.models: tuple[type[Any], ...] = tuple(
            items_of("models", models, "Give model classes in a list: models=[User].")
        )
        self.schemas: dict[str, ModelSchema] = {}
        self._views: dict[type[Any], ModelSchema] = {}
        for model in self.models:
            self._declare(collection_schema(model))
        for model in link_models(self.schemas):
            self._declare(collection_schema(model))
            self.models += (model,)
        tenant_models = items_of("tenant_models", tenant_models, "Give model classes in a list: tenant_models=[User].")
        for model in tenant_models:
            collection_schema(model)  # which refuses what is no model
        refuse_shared_models(self.models, tenant_models)
        refuse_references_across(self.schemas, tenant_models)
        self.schemas = resolved_targets(self.schemas)
        self.signals = Signals()
        self.scans = ScanPolicy(scans)
        self.reserved = ReservedParts(self.schemas)
        self.form = store_format(codec, self.reserved)
        self._keys = keys
        if keys is not None or any(schema.encrypted for schema in self.schemas.values()):
            self.schemas = binding.bound_schemas(self.schemas, KeyCache(keys, random_bytes), self.form.codec)
        self._retry, self._readonly, self._must_be_current = retry, readonly, must_be_current
        self._new_token, self._monotonic, self._uniform = new_token, monotonic, uniform
        self._random_bytes = random_bytes
        self._context: Context | None = None
        self._tenants: DatabaseCore | None = None
        self._store: DatabaseCore | None = None
        if tenant_models:
            self._tenants = self._declared_for_tenants(tenant_models, codec)

    def _declared_for_tenants(self, models: Sequence[type[Any]], codec: str) -> DatabaseCore:
        declared = DatabaseCore(
            models,
            retry=self._retry,
            readonly=self._readonly,
            codec=codec,
            keys=self._keys,
            new_token=self._new_token,
            monotonic=self._monotonic,
            uniform=self._uniform,
            random_bytes=self._random_bytes,
        )
        refuse_references_across(declared.schemas, self.models)
        declared.signals = self.signals
        declared.scans = self.scans
        declared._store = self
        return declared

    def of_tenants(self) -> DatabaseCore:
        """Return the declarations of the models of tenants. Raises InvalidArgumentError if there are none."""
        if self._tenants is None:
            raise InvalidArgumentError(
                "the database was opened without models of tenants",
                argument="tenant_models",
                hint="Name the models of tenants: Database(url, models=[Account], tenant_models=[User]).",
            )
        return self._tenants

    @property
    def tenant_models(self) -> tuple[type[Any], ...]:
        """The model classes of tenants."""
        return () if self._tenants is None else self._tenants.models

    def of_part(self, part: Engine, store: Context, tenant: str) -> DatabaseCore:
        """Return these declarations for the engine of one tenant; ``store`` is the context of its store."""
        found = copy.copy(self)
        options: dict[str, Any] = {**self._declared_options(part), "signals": TenantSignals(self.signals, tenant)}
        found._context = tenants.TenantContext(
            **options,
            codec=store.codec,
            removes=store.removes,
            release_writes=store.release_writes,
            reserve=self._reserve,
            lists=not self._readonly,
        )
        return found

    def _declared_options(self, engine: Engine) -> dict[str, Any]:
        """Return what a context has from these declarations and from an engine, by the names of its fields."""
        return {
            "limits": engine.limits,
            "traits": engine.capabilities.traits,
            "turns": engine.capabilities.turns or Turns(),
            "retry": self._retry,
            "monotonic": self._monotonic,
            "random": self._uniform,
            "new_token": self._new_token,
            "schemas": self.schemas,
            "layouts": {name: record_layout(schema) for name, schema in self.schemas.items()},
            "signals": self.signals,
            "scans": self.scans,
        }

    def _reserve(self, header: Header) -> None:
        """Reserve the first key parts of all collections that a header lists."""
        for part, owner in header.prefixes().items():
            self.reserved.add(part, owner)

    def _declare(self, schema: ModelSchema) -> None:
        other = self.schemas.get(schema.collection)
        if other is not None and other.model is not schema.model:
            raise ModelDefinitionError(
                "two models have the same collection",
                model=schema.name,
                option=schema.collection,
                hint=f"{other.name} has it too. Give one of them another name: class User(KvModel, collection=...); "
                "two versions of one model are opened in two databases.",
            )
        self.schemas[schema.collection] = schema

    def schema_for(self, model: type[Any]) -> ModelSchema:
        """Return the schema of the collection that a registered model is stored in."""
        schema = self._declared_as(model)
        if schema is None and isinstance(cast("object", model), type):
            schema = self._declared_as(root_of(model))
        if schema is not None:
            return schema
        if self._tenants is not None and self._tenants._declared_as(model) is not None:
            raise wrong_side(model, "this model belongs to tenants, not to the store itself", "db.tenant(name)[{}]")
        if self._store is not None and self._store._declared_as(model) is not None:
            raise wrong_side(model, "this model belongs to the store itself, not to a tenant", "db[{}]")
        raise InvalidArgumentError(
            "the database was opened without this model",
            argument="model",
            value=getattr(model, "__name__", None) or short_repr(model),
            expected=tuple(schema.name for schema in self.schemas.values()),
            hint="Give a model class, neither its name nor an object, that was named in Database(url, models=[...]).",
        )

    def _declared_as(self, model: type[Any]) -> ModelSchema | None:
        return next((schema for schema in self.schemas.values() if schema.model is model), None)

    def view_for(self, model: type[Any]) -> ModelSchema:
        """Return the schema for writing and querying objects of a registered model."""
        known = self._views.get(model) if isinstance(cast("object", model), type) else None
        if known is not None:
            return known
        collection = self.schema_for(model)
        view = view_of(collection, model) or collection
        if collection.sealer is not None:
            view = binding.bound_view(view, collection)
        self._views[model] = view
        return view

    @property
    def context(self) -> Context:
        """The context of the flows. Raises ClosedError before ``open`` has succeeded."""
        if self._context is None:
            raise ClosedError(
                "the database is not open yet", hint="Use 'async with AsyncDatabase(...) as db', or await db.open()."
            )
        return self._context

    def open(
        self,
        engine: Engine,
        release_writes: Callable[[Engine], object] | None = None,
        blob_home: BlobHome | None = None,
    ) -> Flow[None]:
        """Bring the store in line with the declarations; see ``flows/evolution/header.py``.

        ``release_writes`` releases a reservation of writes in the world of the facade; None makes no reservations.
        ``blob_home`` opens the blobs of loaded records.
        """
        capabilities = engine.capabilities
        require_storable(self.form.codec, capabilities.traits, engine.url)
        context = Context(
            **self._declared_options(engine),
            codec=self.form.codec,
            removes=capabilities.writes.remove is not None,
            release_writes=partial(release_writes, engine)
            if release_writes is not None and capabilities.writes.reserve is not None
            else None,
            blob_home=blob_home,
        )
        view = yield from stored_header.open_database(context, writable=not self._readonly)
        self._reserve(view.header)
        if self._tenants is not None:
            stored_header.check_declared(context, self._tenants.schemas)
        if self._must_be_current:
            stored_header.require_current(view)
        self._context = context

    def metrics(self, reporters: Iterable[observing.Reporter]) -> counting.Metrics:
        """Return the counters of the first observer that counts.

        Raises:
            UnsupportedError: no observer counts.
        """
        counters = next(
            (one.observer for one in reporters if isinstance(one.observer, counting.OperationCounters)), None
        )
        if counters is None:
            raise UnsupportedError(
                "the operations of this database are not counted",
                reason="metrics",
                hint="Open it with an observer that counts: Database(url, models=[...], observer=OperationCounters()).",
            )
        return counters.metrics((name, index) for name, schema in self.schemas.items() for index in schema.indexes)

    def chosen(self, models: Iterable[type[Any]]) -> list[ModelSchema]:
        """Return the schemas of registered models, or of all. Raises InvalidArgumentError."""
        return [self.schema_for(model) for model in models] or list(self.schemas.values())

    def build_indexes(self, models: Iterable[type[Any]], pace: Pace = UNPACED) -> Flow[tuple[build.BuildReport, ...]]:
        """Build or finish every declared index that is not READABLE, and remove the entries of older generations."""
        return (yield from plan_apply.build_indexes(self.context, self.chosen(models), pace))

    def build_index(self, model: type[Any], name: str, pace: Pace) -> Flow[build.BuildReport]:
        """Build or finish one declared index of a registered model."""
        require_text("name", name, _INDEX_HINT)
        return build.build_index(self.context, self.schema_for(model), name, pace)

    def drop_index(self, model: type[Any] | str, name: str, pace: Pace = UNPACED) -> Flow[bool]:
        """Drop an index of a registered model or a stored collection; return False if the store does not list it."""
        require_text("name", name, _INDEX_HINT)
        collection = model if isinstance(model, str) else self.schema_for(model).collection
        return (yield from drop_index.drop_index(self.context, collection, name, pace)) > 0

    def drop_collection(self, name: str, pace: Pace = UNPACED) -> Flow[bool]:
        """Drop a stored collection without a registered model; return False if the store does not list it."""
        require_text("name", name, 'Give the name of a collection: db.drop_collection("users").')
        return drop_collection.drop_collection(self.context, name, pace)

    def plan(self, models: Iterable[type[Any]], sample: int | None = SAMPLE) -> Flow[evolution.SchemaPlan]:
        """Compare the models with the store."""
        schema_arguments.require_sample(sample)
        return plan_apply.plan_schema(self.context, self.chosen(models), sample)

    def apply(
        self, models: Iterable[type[Any]], allow: Iterable[str], pace: Pace, sample: int | None = SAMPLE
    ) -> Flow[plan_apply.SchemaReport]:
        """Bring the store in line with the models."""
        names = schema_arguments.require_allowed(allow)
        schema_arguments.require_sample(sample)
        applying = plan_apply.apply_schema(self.context, self.chosen(models), names, pace, sample)
        if self._store is not None:
            return self._listed_first(applying)
        if self._tenants is None:
            return applying
        return tenant_schemas.counting_behind(applying, self.context, self._tenants.schemas.values())

    def _listed_first(self, applying: Flow[plan_apply.SchemaReport]) -> Flow[plan_apply.SchemaReport]:
        """List new collections, which a tenant does not do when it is opened; then apply."""
        yield from stored_header.list_collections(self.context)
        return (yield from applying)

    def migrate(self, model: type[Any], forget: Iterable[str], pace: Pace) -> Flow[migrate_flows.MigrationReport]:
        """Rewrite the records of older schema versions."""
        schema = self.schema_for(model)
        names = schema_arguments.require_forgotten(schema, forget)
        return migrate_flows.migrate(self.context, schema, forget=names, pace=pace)

    def rotate(self, model: type[Any], to: int, pace: Pace) -> Flow[rotation.RotationReport]:
        """Seal the encrypted fields of a collection with another key."""
        return rotation.rotate(self.context, self.schema_for(model), require_id("to", to), pace)

    def violations(self, model: type[Any], index: str | None, limit: int) -> Flow[list[listing.RecordViolation]]:
        """List the records that an index cannot hold, or that a migration cannot rewrite."""
        given: object = limit
        if type(given) is not int or given < 1:
            raise InvalidArgumentError(
                "a limit is not a positive whole number",
                argument="limit",
                value=limit,
                hint="Give the maximum number of violations to list.",
            )
        return listing.list_violations(self.context, self.schema_for(model), index, limit)

    def check(self, model: type[Any] | None, repair: scrub.Repair, pace: Pace = UNPACED) -> Flow[findings.CheckReport]:
        """Check the entries of one collection, or of all."""
        if model is None:
            return store_check.check_store(self.context, repair=repair, pace=pace)
        return store_check.check_collection(self.context, self.schema_for(model), repair=repair, pace=pace)

    def recounts(self, model: type[Any] | None, pace: Pace = UNPACED) -> list[Flow[counters.Recount]]:
        """Return flows that count the records for aggregate indexes; run each flow in a snapshot."""
        chosen = self.schemas.values() if model is None else (self.schema_for(model),)
        counted = [schema for schema in chosen if any(index.has_counters for index in schema.indexes.values())]
        return [counters.recount(self.context, schema, pace) for schema in counted]

    def blob_checks(self, model: type[Any] | None, *, hashes: bool) -> Iterator[blob_content.BlobCheck]:
        """Yield the check of the content of blobs, if there are any; ``compare`` of it is run in a snapshot."""
        only = None if model is None else self.schema_for(model).collection
        return blob_content.blob_checks(self.context, only, hashes=hashes)

    def settle(
        self, report: findings.CheckReport, recounted: counters.Recount, repair: scrub.Repair
    ) -> Flow[findings.CheckReport]:
        """Return the report of a check with the findings of a count, repaired on request."""
        found = yield from counters.mend_counters(self.context, recounted, repair=repair is not False)
        unchecked = (*report.unchecked, *recounted.unchecked)
        return findings.CheckReport(report.scanned + recounted.scanned, (*report.findings, *found), unchecked)

    def dumping(
        self,
        models: Iterable[type[Any]],
        dump_format: DumpFormat,
        progress: Progress,
        *,
        history: bool,
        blobs: bool = True,
    ) -> record_dump.RecordDumping:
        """Return a dump of the records of some models, or of all. Raises InvalidArgumentError."""
        require_dump_options(dump_format, progress)
        require_flag("history", history)
        require_flag("blobs", blobs)
        return record_dump.RecordDumping(
            self.context, self.form, self.chosen(models), dump_format, history=history, blobs=blobs
        )

    def loading(
        self,
        models: Sequence[type[Any]],
        on_conflict: bulk_options.OnConflict,
        dump_format: DumpFormat,
        progress: Progress,
    ) -> record_load.RecordLoading:
        """Return a load of the records of some models, or of all records and keys. Raises InvalidArgumentError."""
        if on_conflict not in get_args(bulk_options.OnConflict):
            raise InvalidArgumentError(
                "on_conflict must be 'error', 'ignore' or 'update'",
                argument="on_conflict",
                value=on_conflict,
                expected=get_args(bulk_options.OnConflict),
                hint="Give 'error', 'ignore' or 'update'.",
            )
        require_dump_options(dump_format, progress)
        context = self.context
        schemas = {schema.collection: schema for schema in self.chosen(models)}
        lines = dumped_lines.DumpedLines(
            self.form, schemas, only_records=bool(models), dump_format=dump_format, limits=context.limits
        )
        return record_load.RecordLoading(context, lines, on_conflict, progress)

    def token(self, token: str) -> str:
        """Return the token of a ``CommitUnknownError``. Raises InvalidArgumentError if it is not a text."""
        require_text("token", token, "Give the token of a CommitUnknownError.")
        return token

    def outcome(self, token: str) -> Flow[bool]:
        """Return whether the operation with this token was applied; if not, it never will be."""
        self.token(token)
        context = self.context
        row = yield from tokens.burn(context, tokens.Token(token, context.retry.deadline_s), context.monotonic())
        return row is not None


class ObservedModel:
    """A model of an open database, and the observations of its operations; the base of the runners of both APIs."""

    def __init__(self, opening: Opening, core: DatabaseCore, schema: ModelSchema) -> None:
        self._opening = opening
        self._core = core
        self.schema = schema

    @property
    def part_of(self) -> tuple[Opening, str] | None:
        """The opening of the store and the name of the tenant, if the database is that of a tenant."""
        return self._opening.part_of

    def observation(
        self, verb: str, query: Query | None = None, *, streamed: bool = False
    ) -> observing.Observation | None:
        """Return the observation of a method; None without observers."""
        reporters = self._opening.reporters
        if not reporters:
            return None
        return observing.Observation(
            reporters,
            verb,
            self.schema.collection,
            owners=self._core.reserved,
            context=self._core.context,
            query=query,
            streamed=streamed,
        )
