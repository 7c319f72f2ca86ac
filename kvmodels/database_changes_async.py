"""The part of the asynchronous database that changes the schema of a store: indexes, records, and what is in their way.

Rules of this module: a method runs one flow and decides nothing. Names, signatures and behaviour are those of
``kvmodels.database_changes``, which a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from kvmodels.database_core import DatabaseCore
from kvmodels.drivers_async import arun
from kvmodels.engines.base import Engine
from kvmodels.flows import build as building
from kvmodels.flows import migrate as migrate_flows
from kvmodels.flows import plan_apply
from kvmodels.flows import violations as listing
from kvmodels.flows.pace import Pace, SchemaProgress
from kvmodels.flows.requests import AnyFlow
from kvmodels.flows.sampling import SAMPLE
from kvmodels.kv_opening import Opening
from kvmodels.schema import evolution
from kvmodels.schema.model import KvModel

__all__ = ["AsyncSchemaChanges"]

T = TypeVar("T")


class AsyncSchemaChanges:
    """What ``AsyncDatabase`` can do about its schema."""

    __slots__ = ()

    _core: DatabaseCore
    _opening: Opening

    @property
    def _engine(self) -> Engine:
        return self._opening.open()

    def _run(self, flow: AnyFlow[T]) -> Coroutine[Any, Any, T]:
        return arun(self._engine, flow)

    async def build_indexes(
        self,
        *models: type[KvModel],
        progress: Callable[[SchemaProgress], object] | None = None,
        throttle: float | None = None,
    ) -> tuple[building.BuildReport, ...]:
        """Build every declared index that is not ready, beside readers and writers.

        Any number of processes may build at once, and a build that was interrupted goes on where it stopped.

        Args:
            models: build only theirs; none given: all.
            progress: called after each batch with a ``SchemaProgress``; what it raises ends the build until the next.
            throttle: the most records per second; None for no limit.

        Returns:
            One report per index that was not ready. Cost: reads every record once; one commit per batch.

        Raises:
            SchemaMismatchError: this process may not write a collection.
            InvalidArgumentError: a throttle that is no positive number.
        """
        return await self._run(self._core.build_indexes(models, Pace(progress, throttle)))

    async def plan(self, *models: type[KvModel], sample: int | None = SAMPLE) -> evolution.SchemaPlan:
        """Compare the models with the store: what differs, by which rule, and what ``apply()`` would do about it.

        Args:
            models: compare only these; none given: all.
            sample: how many records of each collection the models are tried on, in the order of their keys: each is
                read, and one that waits for an upgrade is made anew as it would be written, but for a unique value
                that another record has; 0 for none, None for all.

        Returns:
            The plan; print it. Cost: a read of the catalogue, and for each collection one of the sample, whose records
            are decoded; one read per 500 records of a larger one.

        Raises:
            InvalidArgumentError: the database was opened without one of the models, or a sample that is no number.

        Examples:
            >>> import asyncio
            >>> from kvmodels import AsyncDatabase
            >>> async def main():
            ...     async with AsyncDatabase("memory://") as db:
            ...         print(await db.plan())
            >>> asyncio.run(main())
            the store is as the models declare it
        """
        return await self._run(self._core.plan(models, sample))

    async def apply(
        self,
        *models: type[KvModel],
        allow: Iterable[str] = (),
        progress: Callable[[SchemaProgress], object] | None = None,
        throttle: float | None = None,
        sample: int | None = SAMPLE,
    ) -> plan_apply.SchemaReport:
        """Bring the store in line with the models: do every step of the plan, beside readers and writers.

        Indexes are built and switched by one commit each, records are rewritten where an index waits for an upgrade,
        entries that nobody needs are removed. Any number of processes may apply at once, and what was interrupted goes
        on where it stopped when it is applied again.

        Args:
            models: only these; none given: all.
            allow: names of what the plan asks to be allowed: ``"drop_index"``, ``"forget_field"``, ``"change_type"``,
                ``"leave_records"``.
            progress: called after each batch with a ``SchemaProgress``; what it raises ends the work until the next.
            throttle: the most records per second; None for no limit.
            sample: how many records of each collection the models are tried on before anything is done; see ``plan()``.

        Returns:
            What was done; ``complete`` is False while violations are left. Cost: that of ``plan()``; for each index
            that is built, and for a migration, every record is read once; one commit per batch.

        Raises:
            SchemaChangeRefusedError: a step is refused, or a record of the sample that a raised schema version would
                leave unreadable; nothing was done.
            SchemaMismatchError: a newer release of the program was applied meanwhile.
            InvalidArgumentError: an unknown name in ``allow``, a throttle that is no positive number, or a sample that
                is no number.
        """
        return await self._run(self._core.apply(models, allow, Pace(progress, throttle), sample))

    async def migrate(
        self,
        model: type[KvModel],
        *,
        forget: Iterable[str] = (),
        progress: Callable[[SchemaProgress], object] | None = None,
        throttle: float | None = None,
    ) -> migrate_flows.MigrationReport:
        """Rewrite every record of an older schema version as the upgrades of the model make it.

        Needed where an index waits for it, which ``apply()`` does by itself; else records are upgraded when they are
        read, and this only takes the work from later reads. Resumable, by any number of processes. A schema version
        that was not applied yet is raised without a trial, which ``apply()`` makes first.

        Args:
            model: one of the registered models.
            forget: fields that the model does not declare any more, whose values are taken out of the records, also
                where an upgrade has left them behind; every record is read for it.
            progress: called after each batch with a ``SchemaProgress``; what it raises ends the work until the next.
            throttle: the most records per second; None for no limit.

        Returns:
            How many records were rewritten, and those that cannot be. Cost: reads every record once; one commit per
            batch; nothing but a read when no record is older.

        Raises:
            SchemaMismatchError: this process may not write the collection.
            InvalidArgumentError: ``forget`` names a declared or reserved field, or a throttle is no positive number.
        """
        return await self._run(self._core.migrate(model, forget, Pace(progress, throttle)))

    async def violations(
        self, model: type[KvModel], index: str | None = None, *, limit: int = 1_000
    ) -> list[listing.RecordViolation]:
        """The records that keep an index from becoming readable, or a migration from its end.

        Args:
            model: one of the registered models.
            index: only those of this one; None for all, and for the records that cannot be migrated.
            limit: the most of each index.

        Returns:
            Them, in the order of their values and keys. Cost: two reads for each index that is not ready.

        Raises:
            UnknownFieldError: there is no such index.
            InvalidArgumentError: a limit that is no positive number.
        """
        return await self._run(self._core.violations(model, index, limit))

    async def resolve(self, model: type[KvModel], index: str | None = None) -> tuple[building.BuildReport, ...]:
        """Look at the violations of an index again, after their records were changed; without any it becomes readable.

        Args:
            model: one of the registered models.
            index: only this one; None for all that have violations.

        Returns:
            One report per index, with what is left. Cost: two reads and a commit for each violation.

        Raises:
            UnknownFieldError: the model declares no such index.
            SchemaMismatchError: this process may not write the collection.
        """
        return await self._run(self._core.resolve(model, index))

    async def drop_index(self, model: type[KvModel], name: str) -> bool:
        """Drop an index with all its entries, for every process at once.

        Args:
            model: one of the registered models.
            name: the index, declared or not.

        Returns:
            False when the store lists no such index. Cost: one commit, then one per 400 entries.

        Raises:
            InvalidArgumentError: the database was opened without this model.
            SchemaMismatchError: a newer release has raised the schema version, so this one only reads.
        """
        return await self._run(self._core.drop_index(model, name))
