"""Observers, spans and receivers of signals are told the tenant; measurements only on request."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kvmodels import AsyncDatabase, Database, FinishedOperation
from kvmodels.ext.opentelemetry import instrument
from tests.tenants.models import TENANT_MODELS, Account, User


def user(number: int) -> dict[str, Any]:
    return {"id": number, "email": str(number), "color": "red"}


async def test_observers_are_told_the_tenant_of_each_operation():
    seen: list[FinishedOperation] = []
    with Database("memory://", models=[Account], tenant_models=TENANT_MODELS) as db:
        acme = db.tenant("acme", create=True)
        acme[User].create(**user(0))
        db.add_observer(seen.append)
        acme[User].get(0)
        db[Account].count()
        with acme.transaction() as tx:
            tx[User].get(0)
        acme.kv.get(("note",))
        db.create_tenant("initech")
    assert [one.tenant for one in seen] == ["acme", None, "acme", "acme", "acme", None]
    assert str(seen[0]).startswith("get users of tenant acme: ")
    async with AsyncDatabase("memory://", tenant_models=TENANT_MODELS, observer=seen.append) as other:
        await other.tenant("acme", create=True)[User].count()
    assert (seen[-1].verb, seen[-1].tenant) == ("count", "acme")


def test_receivers_are_told_the_tenant_before_and_after_the_commit():
    told: list[tuple[str, Any, str | None]] = []
    with Database("memory://", models=[Account], tenant_models=TENANT_MODELS) as db:

        def before(record: Any) -> None:
            told.append(("before", type(record).__name__, db.signals.tenant))

        db.signals.before_insert.connect(before)

        @db.signals.after_update(User)
        def after(record: User, _: User) -> None:
            told.append(("after", record.id, db.signals.tenant))

        for name in ("acme", "initech"):
            db.create_tenant(name)
            db.tenant(name)[User].create(**user(1))
        db[Account].create(id=1, email="1")
        db.tenant("initech")[User].patch(1, name="new")
        assert db.signals.tenant is None
        db.signals.before_insert.disconnect(before)
        db.tenant("acme")[User].create(**user(2))
    assert told == [
        ("before", "User", "acme"),
        ("before", "User", "initech"),
        ("before", "Account", None),
        ("after", 1, "initech"),
    ]


def test_spans_have_the_tenant_and_measurements_only_on_request():
    exporter = InMemorySpanExporter()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    for measures in (False, True):
        reader = InMemoryMetricReader()
        meters = MeterProvider([reader], shutdown_on_exit=False)
        with Database("memory://", models=[Account], tenant_models=TENANT_MODELS) as db:
            acme = db.tenant("acme", create=True)
            instrument(db, tracer_provider=tracers, meter_provider=meters, measures_tenants=measures)
            acme[User].count()
            db[Account].count()
        spans = exporter.get_finished_spans()
        assert [(span.attributes or {}).get("kvmodels.tenant") for span in spans] == ["acme", None]
        exporter.clear()
        data: Any = reader.get_metrics_data()
        points = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
        found = {point.attributes.get("kvmodels.tenant") for point in points}
        assert found == ({"acme", None} if measures else {None})
