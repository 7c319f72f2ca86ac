# Generated from kvmodels/api/_async/schema/changes.py by tools/unasync.py. Do not edit.
"""Changes of the schema of a database or of one tenant: plans, index builds, migrations and drops; and its check.

Rules of this module: a method runs one flow, or one function for many tenants, and contains no decisions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, TypeVar, overload

from kvmodels.api import core as database_core
from kvmodels.api import opening as kv_opening
from kvmodels.api import schema_arguments, tenancy, tenant_changes
from kvmodels.api._sync import _compat as worlds
from kvmodels.api._sync.schema import tenants as of_tenants
from kvmodels.api.progress import listening
from kvmodels.catalog import evolution
from kvmodels.engines import contract as base
from kvmodels.flows import arguments, tenant_schemas
from kvmodels.flows import effects as requests
from kvmodels.flows import tenants as tenant_flows
from kvmodels.flows.check import findings, scrub
from kvmodels.flows.check import tenants as tenant_checks
from kvmodels.flows.evolution import apply as plan_apply
from kvmodels.flows.evolution import build as building
from kvmodels.flows.evolution import migrate as migrate_flows
from kvmodels.flows.evolution import rotation as rotations
from kvmodels.flows.evolution import throttle as pace
from kvmodels.flows.evolution import violations as listing
from kvmodels.flows.evolution.throttle import SAMPLE
from kvmodels.schema.compile.model import KvModel

T = TypeVar("T")


class SchemaChanges(ABC):
    """The methods of a database that compare its models with the store, and change or repair the store."""

    __slots__ = ()

    _core: database_core.DatabaseCore
    _opening: kv_opening.Opening

    @abstractmethod
    def _require_store(self, call: str) -> None:
        """Refuse a call of the whole store on the database of a tenant. Raises UnsupportedError."""

    @abstractmethod
    def _run(self, verb: str, flow: requests.AnyFlow[T]) -> T:
        """Run the flow of a method, observed under its name."""

    def build_indexes(
        self,
        *models: type[KvModel],
        progress: bool | Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
    ) -> tuple[building.BuildReport, ...]:
        """Build every declared index that is not ready, next to live readers and writers.

        Any number of processes may build at the same time. An interrupted build resumes where it stopped.

        Args:
            models: build only the indexes of these models; by default those of all.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch with a
                ``SchemaProgress``; an exception that it raises stops the build, which the next call resumes.
            throttle: the maximum number of records per second; None for no limit.

        Returns:
            One report per index that was not ready. Cost: reads every record once; one commit per batch.

        Raises:
            SchemaMismatchError: this process must not write to one of the collections.
            InvalidArgumentError: the throttle is not a positive number.
        """
        with listening.listener(progress, "build_indexes") as listen:
            return self._run("build_indexes", self._core.build_indexes(models, pace.Pace(listen, throttle)))

    def build_index(
        self,
        model: type[KvModel],
        name: str,
        *,
        progress: bool | Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
    ) -> building.BuildReport:
        """Build one declared index, next to live readers and writers; see ``build_indexes``.

        Args:
            model: one of the registered models.
            name: the index.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch with a
                ``SchemaProgress``; an exception that it raises stops the build, which the next call resumes.
            throttle: the maximum number of records per second; None for no limit.

        Returns:
            The report, also for an index that was ready. Cost: reads every record once; one commit per batch.

        Raises:
            UnknownFieldError: the model declares no such index.
            SchemaMismatchError: this process must not write to the collection.
            RetriesExhaustedError: a batch met a conflict in every attempt.
            InvalidArgumentError: the database was opened without this model, or the throttle is not a positive number.
        """
        with listening.listener(progress, "build_index") as listen:
            return self._run("build_index", self._core.build_index(model, name, pace.Pace(listen, throttle)))

    @overload
    def plan(
        self, *models: type[KvModel], sample: int | None = SAMPLE, tenants: None = None
    ) -> evolution.SchemaPlan: ...
    @overload
    def plan(
        self, *models: type[KvModel], sample: int | None = SAMPLE, tenants: Literal[True] | Iterable[str]
    ) -> tenant_schemas.TenantsPlan: ...
    def plan(
        self,
        *models: type[KvModel],
        sample: int | None = SAMPLE,
        tenants: Literal[True] | Iterable[str] | None = None,
    ) -> evolution.SchemaPlan | tenant_schemas.TenantsPlan:
        """Return the differences between the models and the store, and how ``apply()`` would resolve them.

        Args:
            models: compare only these models; by default all.
            sample: how many records of each collection to try the models on, in key order. Each is read, and a record
                that needs an upgrade is also upgraded and validated for writing, except for unique values that another
                record has. 0 for no records, None for all.
            tenants: True for all tenants, or the names of some: compare the models of tenants with each of them.
                Tenants with equal catalogues are planned once, with the records of the first one.

        Returns:
            The plan; print it. Cost: one read of the catalogue and, for each collection, one read per 500 records of
            the sample, which are decoded; with ``tenants``, this for each different catalogue, and a row and the
            catalogue of each tenant, read in batches.

        Raises:
            InvalidArgumentError: the database was opened without one of the models, or an argument is not valid.
            TenantNotFoundError, TenantRemovedError: one of the tenants does not exist.
            UnsupportedError: this is the database of a tenant, and ``tenants`` is given.

        Examples:
            >>> from kvmodels import Database
            >>> with Database("memory://") as db:
            ...     print(db.plan())
            the store is as the models declare it
        """
        if tenants is None:
            return self._run("plan", self._core.plan(models, sample))
        self._require_store("plan")
        names = schema_arguments.require_names(tenants)
        schema_arguments.require_sample(sample)
        return of_tenants.plan_tenants(*self._places("plan"), models, names=names, sample=sample)

    @overload
    def apply(
        self,
        *models: type[KvModel],
        allow: Iterable[str] = (),
        progress: bool | Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
        sample: int | None = SAMPLE,
        tenants: None = None,
        concurrency: int = 1,
    ) -> plan_apply.SchemaReport: ...
    @overload
    def apply(
        self,
        *models: type[KvModel],
        allow: Iterable[str] = (),
        progress: bool | Callable[[tenant_schemas.TenantProgress], object] | None = None,
        throttle: float | None = None,
        sample: int | None = SAMPLE,
        tenants: Literal[True] | Iterable[str],
        concurrency: int = 1,
    ) -> tenant_schemas.TenantsReport: ...
    def apply(
        self,
        *models: type[KvModel],
        allow: Iterable[str] = (),
        progress: bool | Callable[[Any], object] | None = None,
        throttle: float | None = None,
        sample: int | None = SAMPLE,
        tenants: Literal[True] | Iterable[str] | None = None,
        concurrency: int = 1,
    ) -> plan_apply.SchemaReport | tenant_schemas.TenantsReport:
        """Bring the store in line with the models: carry out every step of the plan next to live readers and writers.

        Each index is built and then activated in one commit. Records are rewritten if an index waits for an upgrade,
        and obsolete entries are removed. Any number of processes may call it at the same time; if it is interrupted,
        the next call resumes. Tenants are left alone; ``tenants`` brings them in line instead of the store itself.

        Args:
            models: apply only the changes of these models; by default those of all.
            allow: names of changes that the plan says must be allowed: ``"drop_index"``, ``"forget_field"``,
                ``"change_type"``, ``"leave_records"``.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch with a
                ``SchemaProgress``; an exception that it raises stops the work, which the next call resumes. With
                ``tenants``, it gets a ``TenantProgress``, also after each tenant, from one thread at a time.
            throttle: the maximum number of records per second; None for no limit.
            sample: how many records of each collection to try the models on before anything is changed; see ``plan()``.
            tenants: True for all tenants, or the names of some. A tenant that cannot be changed does not stop the
                others; it is listed in ``failed`` of the result. An error of the engine stops the work.
            concurrency: how many tenants are changed at the same time, in threads or tasks.

        Returns:
            The changes made; ``complete`` is False if violations are left. Cost: the cost of ``plan()``, and one read
            of every record for each index build and each migration, with one commit per batch. A database with models
            of tenants also reads the catalogue of each tenant, in batches, to count those that are behind. With
            ``tenants``: the same reads, and then the cost of ``apply()`` for each tenant that is behind, and nothing
            for the others.

        Raises:
            SchemaChangeRefusedError: a step is refused, or a record of the sample would become unreadable under the
                raised schema version; nothing was changed.
            SchemaMismatchError: a newer release of the program was applied meanwhile; or this process lacks the keys of
                encrypted fields in a collection whose schema version it would raise, and nothing was changed.
            InvalidArgumentError: an argument is not valid.
            TenantNotFoundError, TenantRemovedError: one of the given tenants does not exist; nothing was changed.
            UnsupportedError: this is the database of a tenant, and ``tenants`` is given.
        """
        with listening.listener(progress, "apply") as listen:
            if tenants is None:
                schema_arguments.require_concurrency(concurrency)
                return self._run("apply", self._core.apply(models, allow, pace.Pace(listen, throttle), sample))
            self._require_store("apply")
            change = tenant_changes.TenantsChange(
                tenants, allow, sample, progress=listen, throttle=throttle, concurrency=concurrency
            )
            return of_tenants.apply_tenants(*self._places("apply"), models, change=change)

    @overload
    def check(
        self,
        model: type[KvModel] | None = None,
        *,
        repair: scrub.Repair = False,
        blobs: bool = False,
        progress: bool | Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
        tenants: None = None,
        concurrency: int = 1,
    ) -> findings.CheckReport: ...
    @overload
    def check(
        self,
        model: type[KvModel] | None = None,
        *,
        repair: scrub.Repair = False,
        blobs: bool = False,
        progress: bool | Callable[[tenant_schemas.TenantProgress], object] | None = None,
        throttle: float | None = None,
        tenants: Literal[True] | Iterable[str],
        concurrency: int = 1,
    ) -> tenant_checks.TenantsCheck: ...
    def check(
        self,
        model: type[KvModel] | None = None,
        *,
        repair: scrub.Repair = False,
        blobs: bool = False,
        progress: bool | Callable[[Any], object] | None = None,
        throttle: float | None = None,
        tenants: Literal[True] | Iterable[str] | None = None,
        concurrency: int = 1,
    ) -> findings.CheckReport | tenant_checks.TenantsCheck:
        """Check that index entries and counters match the records exactly; safe next to live writers.

        Tenants are left alone, except that their messages are compared with the announcements of these in the store;
        ``tenants`` checks them instead of the store itself.

        Args:
            model: check only its collection; None for all.
            repair: True repairs entries, and rebuilds an index with wrong counters, which rewrites every record.
                ``"all"`` also deletes foreign keys and undecodable rows. No repair deletes a document that its model
                rejects: fix the model, or remove the document with ``repository.remove(key)``.
            blobs: also read the content of all blobs, and compare their hashes. Without it, their chunks are counted.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch with a
                ``SchemaProgress`` whose ``step`` is ``"check"``; an exception that it raises ends the check. With
                ``tenants``, it gets a ``TenantProgress``, also after each tenant, from one thread at a time; a check
                that ends early is continued with the names that are left.
            throttle: the maximum number of rows per second; None for no limit.
            tenants: True for all tenants, in the order of their names, or the names of some. A tenant whose check
                raises an error does not stop the others; it is listed in ``failed`` of the result. An error of the
                engine ends the check.
            concurrency: how many tenants are checked at the same time, in threads or tasks.

        Returns:
            The findings. Cost: reads every record and entry once, in batches of 500, and every difference a second
            time. For indexes with counters it reads every record once more in one snapshot, and keeps one number per
            counter in memory. Entries of collections without a declared model are compared with the index definitions
            in the store, and never repaired. ``unchecked`` of the report lists everything that was not compared, with
            the reason: indexes that are incomplete or not declared by this release, counters of undeclared collections,
            counters next to unreadable records, and tenants. With ``tenants``: the cost for each of them, and their
            rows; the result keeps the reports of those in which something was found or not compared.

        Raises:
            InvalidArgumentError: an unknown kind of repair, or another argument that is not valid.
            TenantModelError: the model belongs to tenants and ``tenants`` is not given, or the other way round.
            SnapshotLostError: the store has ended the snapshot in which it counts, such as when a connection broke.
            TenantNotFoundError, TenantRemovedError: one of the given tenants does not exist; nothing was checked.
            UnsupportedError: this is the database of a tenant, and ``tenants`` is given.

        Examples:
            >>> from kvmodels import Database
            >>> with Database("memory://") as db:
            ...     print(db.check())
            ok: 0 rows scanned; 0 dangling, 0 missing, 0 foreign, 0 undecodable, 0 computed, 0 counters; 0 repaired
        """
        with listening.listener(progress, "check") as listen:
            schema_arguments.require_repair(repair)
            arguments.require_flag("blobs", blobs)
            if tenants is None:
                schema_arguments.require_concurrency(concurrency)
                speed = pace.Pace(listen, throttle)
                observation = self._opening.observation("check")
                place = self._opening.open(), self._core, observation
                return of_tenants.check_one(*place, model, repair, pace=speed, hashes=blobs)
            self._require_store("check")
            work = tenant_changes.TenantsChecking(tenants, progress=listen, throttle=throttle, concurrency=concurrency)
            places = self._places("check")
            return of_tenants.check_tenants(*places, model, repair=repair, hashes=blobs, work=work)

    def _places(self, verb: str) -> of_tenants.Places:
        return self._opening.open(), self._core, self._in_tenant, partial(self._opening.observation, verb)

    def _in_tenant(self, name: str) -> tuple[base.Engine, database_core.DatabaseCore]:
        life = tenant_flows.TenantLife(name, self._core.form.codec, creates=False)
        return tenancy.tenant_engine(self._opening.open(), self._core, life, worlds.run)

    def migrate(
        self,
        model: type[KvModel],
        *,
        forget: Iterable[str] = (),
        progress: bool | Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
    ) -> migrate_flows.MigrationReport:
        """Rewrite every record of an older schema version with the upgrades of the model.

        ``apply()`` calls it if an index needs it. Otherwise records are upgraded when they are read, and this method
        only saves later reads that work. It can be resumed, by any number of processes. If the declared schema version
        was not applied yet, it is raised without the trial that ``apply()`` makes first.

        Args:
            model: one of the registered models.
            forget: names of fields that the model no longer declares; their values are removed from all records,
                including values that an upgrade left in place. Every record is read for it.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch with a
                ``SchemaProgress``; an exception that it raises stops the work, which the next call resumes.
            throttle: the maximum number of records per second; None for no limit.

        Returns:
            The number of rewritten records, and the records that cannot be rewritten. Cost: reads every record once,
            with one commit per batch; only one read if no record is older.

        Raises:
            SchemaMismatchError: this process must not write to the collection.
            RetriesExhaustedError: a batch met a conflict in every attempt.
            InvalidArgumentError: ``forget`` names a declared or reserved field, or the throttle is not a positive
                number.
        """
        with listening.listener(progress, "migrate") as listen:
            return self._run("migrate", self._core.migrate(model, forget, pace.Pace(listen, throttle)))

    def rotate(
        self,
        model: type[KvModel],
        *,
        to: int,
        progress: bool | Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
    ) -> rotations.RotationReport:
        """Seal the encrypted fields of a model with another key, while other processes read and write.

        Give the new key to every process first. From the first commit on, all of them write with it. At the end the
        header no longer lists the old key: only then may it leave the ring. It can be resumed, by any number of
        processes.

        Args:
            model: one of the registered models.
            to: the id of the new key.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch with a
                ``SchemaProgress``; an exception that it raises stops the work, which the next call resumes.
            throttle: the maximum number of records per second; None for no limit.

        Returns:
            The number of sealed records and old versions, and the records that cannot be opened. Cost: reads every
            record and every old version once, with one commit per batch.

        Raises:
            InvalidArgumentError: this process does not have the key, the model has no encrypted field, or the throttle
                is not a positive number.
            SchemaMismatchError: this process must not write to the collection, or another one rotates to another key.
            RetriesExhaustedError: a batch met a conflict in every attempt.
        """
        with listening.listener(progress, "rotate") as listen:
            return self._run("rotate", self._core.rotate(model, to, pace.Pace(listen, throttle)))

    def violations(
        self, model: type[KvModel], index: str | None = None, *, limit: int = 1_000
    ) -> list[listing.RecordViolation]:
        """Return the records that prevent an index or a history from becoming readable, or a migration from completing.

        Args:
            model: one of the registered models.
            index: only the records of this index, or ``"history"`` for those of the history; None for all of them, and
                those of the migration.
            limit: the maximum number of records for each index.

        Returns:
            The violations in the order of their values and keys. Cost: two reads for each index that is not ready.

        Raises:
            UnknownFieldError: the model has no such index.
            InvalidArgumentError: the limit is not a positive number.
        """
        return self._run("violations", self._core.violations(model, index, limit))

    def resolve(self, model: type[KvModel], index: str | None = None) -> tuple[building.BuildReport, ...]:
        """Check the violations of an index again after their records were changed; without any, it becomes readable.

        Args:
            model: one of the registered models.
            index: only this index; None for all indexes with violations.

        Returns:
            One report per index, with the remaining violations. Cost: two reads and a commit for each violation.

        Raises:
            UnknownFieldError: the model declares no such index.
            SchemaMismatchError: this process must not write to the collection.
        """
        return self._run("resolve", listing.resolve(self._core.context, self._core.schema_for(model), index))

    def drop_index(
        self,
        model: type[KvModel] | str,
        name: str,
        *,
        progress: bool | Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
    ) -> bool:
        """Drop an index with all its entries, for every process at once; an interrupted call can be repeated.

        Args:
            model: one of the registered models, or the name of a collection, which needs no registered model.
            name: the index, declared or not.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch of entries
                with a ``SchemaProgress``.
            throttle: the maximum number of entries per second; None for no limit.

        Returns:
            Whether the store listed the index. Cost: one commit, then one per 400 entries.

        Raises:
            InvalidArgumentError: the database was opened without this model, or the throttle is not a positive number.
            SchemaMismatchError: a newer release has raised the schema version, so this process may only read.
        """
        with listening.listener(progress, "drop_index") as listen:
            return self._run("drop_index", self._core.drop_index(model, name, pace.Pace(listen, throttle)))

    def drop_collection(
        self,
        name: str,
        *,
        progress: bool | Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
    ) -> bool:
        """Drop a collection: its records, indexes and other rows, and its part of the catalogue.

        From the first commit on, no process can use the collection. An interrupted call can be repeated.

        Args:
            name: a collection of the store. No registered model may declare it.
            progress: True for a progress bar (extra ``rich``), or a function that is called after each batch of rows
                with a ``SchemaProgress``.
            throttle: the maximum number of rows per second; None for no limit.

        Returns:
            Whether the store listed the collection. Cost: two commits, and one per 400 rows.

        Raises:
            InvalidArgumentError: a registered model declares it, the name is no text, or the throttle is not a positive
                number.
            SchemaMismatchError: a foreign key of another collection refers to it, or a newer release of kvmodels has
                described it in a way that this one does not know.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Herb(KvModel, collection="herbs"):
            ...     id: PrimaryKey[int]
            >>> with Database("memory://herbs", models=[Herb]) as db:
            ...     _ = db[Herb].create(id=1)
            ...     with Database("memory://herbs") as other:
            ...         other.drop_collection("herbs"), other.drop_collection("herbs")
            (True, False)
        """
        with listening.listener(progress, "drop_collection") as listen:
            return self._run("drop_collection", self._core.drop_collection(name, pace.Pace(listen, throttle)))
