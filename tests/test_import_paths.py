"""Import paths that documentation shows, beside the names that ``kvmodels`` itself has."""

from __future__ import annotations

import importlib
import warnings

import pytest

DOCUMENTED = {
    "kvmodels.errors": "KvModelsError KeyTooLargeError DoesNotExist",
    "kvmodels.ext.opentelemetry": "instrument",
    "kvmodels.ext.rich_tree": "plan_tree",
    "kvmodels.ext.serve": "AccessToken KvConnectServer ServedStore serve",
    "kvmodels.keys": "encode_key decode_key COMMIT_VERSIONSTAMP",
    "kvmodels.limits": "Limits Traits",
    "kvmodels.engines.faults": "FaultEngine",
    "kvmodels.engines.memory": "MemoryEngine",
    "kvmodels.testing": "DatabaseCore FaultEngine FaultRates StepHistory Interleaving MemoryEngine Process VirtualTime",
    "kvmodels.testing.interleaving": "Interleaving",
    "kvmodels.testing.processes": "Process",
    "kvmodels.testing.schedules": "FaultRates StepHistory",
}


@pytest.mark.parametrize("path", DOCUMENTED)
def test_a_documented_path_has_its_names(path):
    module = importlib.import_module(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(getattr(module, name) is not None for name in DOCUMENTED[path].split())
