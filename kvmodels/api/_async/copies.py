"""Write a dump to a file, and load one into a store that is in use.

Rules of this module: files are read and written here, in threads if there is an event loop; every decision is one of
the flows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from kvmodels.api._async._compat import in_thread, pin_for_long, release, run, run_to_end
from kvmodels.api.dump_files import DeferredLines, DumpFile, DumpReader, DumpWriter, readable_twice
from kvmodels.core.operations import Row
from kvmodels.engines.contract import Engine
from kvmodels.errors import KvModelsError
from kvmodels.flows import tenants as tenant_flows
from kvmodels.flows.kv import dump as dumping_flows
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.transfer import load as loading_flows
from kvmodels.flows.transfer import whole_store
from kvmodels.limits import Limits
from kvmodels.runtime.observing.observation import Observation, observed, through


async def write_dump(
    engine: Engine,
    dumping: dumping_flows.Dumping,
    limits: Limits,
    file: DumpFile,
    progress: Callable[[int], object] | None,
    *,
    observation: Observation | None,
) -> int:
    """Write the lines of one snapshot, and return the number of keys; an unfinished file is removed."""
    state = await pin_for_long(engine)
    try:
        with observed(observation), DumpWriter(file) as writer:
            writer.write(await run(engine, through(observation, dumping.begin()), snapshot=state))
            while rows := await run(engine, through(observation, dumping.rows(limits)), snapshot=state):
                await in_thread(writer.write, dumping.lines(rows))
                if progress is not None:
                    progress(dumping.keys)
            writer.write(dumping.end())
            await in_thread(writer.sync)
    finally:
        await release(engine, state)
    return dumping.keys


async def load_dump(
    engine: Engine, loading: loading_flows.RecordLoading, file: DumpFile, *, observation: Observation | None
) -> loading_flows.LoadResult:
    """Examine all lines of a dump, then store them; records without their targets are stored after all others."""
    with observed(observation), readable_twice(file) as (source, beginning), DumpReader(source) as reader:
        while lines := await in_thread(reader.read):
            await run(engine, through(observation, loading.examine(lines)))
        has_circles = loading.examined()
        reader.rewind(beginning)
        if has_circles:
            while lines := await in_thread(reader.read):
                await run(engine, through(observation, loading.measure(lines)))
            loading.measured()
            reader.rewind(beginning)
        later = DeferredLines()
        try:
            while lines := await in_thread(reader.read):
                later.write(await run(engine, through(observation, loading.store(lines))))
            later.write(loading.unfinished())
            final = False
            while later.count:
                before, later = later, DeferredLines()
                with contextlib.closing(before):
                    again = before.reader()
                    while lines := await in_thread(again.read):
                        storing = loading.store(lines, deferred=True, final=final)
                        later.write(await run(engine, through(observation, storing)))
                    final = later.count == before.count  # the last round has not helped
        finally:
            later.close()
    return loading.result()


async def copy_tenant(
    source: Engine,
    form: StoreFormat,
    name: str,
    target: Engine,
    loading: dumping_flows.Loading,
    *,
    observation: Observation | None,
) -> int:
    """Copy one snapshot of a tenant, and return the number of keys; an unfinished copy is removed."""
    limits = form.limits_within(source.limits)
    state = await pin_for_long(source)
    try:
        with observed(observation):
            await run(
                source, through(observation, tenant_flows.require_tenants(form.codec, limits, [name])), snapshot=state
            )
            dumping = dumping_flows.Dumping(whole_store.confined(form, name))
            try:
                await run(target, loading.begin(restart=False))
                lines: Sequence[str] = await run(source, through(observation, dumping.begin()), snapshot=state)
                await _pass_on(target, loading, lines)
                while rows := await run(source, through(observation, dumping.rows(limits)), snapshot=state):
                    await _pass_on(target, loading, await in_thread(_lines_of, dumping, rows))
                await _pass_on(target, loading, dumping.end())
                return await run(target, loading.finish())
            except BaseException as error:
                await run_to_end(partial(abandon, target, loading, error))
                raise
    finally:
        await release(source, state)


def _lines_of(dumping: dumping_flows.Dumping, rows: Sequence[Row]) -> list[str]:
    return [*dumping.lines(rows)]


async def _pass_on(target: Engine, loading: dumping_flows.Loading, lines: Sequence[str]) -> None:
    for mutations in await in_thread(loading.take, lines):
        await run(target, loading.store(mutations))


async def abandon(engine: Engine, loading: dumping_flows.Loading, error: BaseException) -> None:
    """Remove the keys of a load that has failed; if that fails too, the error says so."""
    try:
        await run(engine, loading.abandon())
    except KvModelsError as failure:
        error.add_note(f"the keys that were loaded could not be removed: {failure}")
