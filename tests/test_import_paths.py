"""Import paths that documentation shows: the present ones, and the old ones, which warn until the next release."""

from __future__ import annotations

import importlib
import sys
import warnings

import pytest

from kvmodels._support.moved_modules import MOVED

DOCUMENTED = {
    "kvmodels.errors": "KvModelsError KeyTooLargeError DoesNotExist",
    "kvmodels.ext.opentelemetry": "instrument",
    "kvmodels.ext.rich_tree": "plan_tree",
    "kvmodels.ext.serve": "AccessToken KvConnectServer ServedStore serve",
    "kvmodels.keys": "encode_key decode_key COMMIT_VERSIONSTAMP",
    "kvmodels.limits": "Limits Traits",
    "kvmodels.engines.faults": "FaultEngine",
    "kvmodels.engines.memory": "MemoryEngine",
    "kvmodels.testing": "DatabaseCore FaultEngine FaultRates History Interleaving MemoryEngine Process VirtualTime",
    "kvmodels.testing.interleaving": "Interleaving",
    "kvmodels.testing.processes": "Process",
    "kvmodels.testing.schedules": "FaultRates History",
}
OLD = {
    "kvmodels.database_core": "DatabaseCore",
    "kvmodels.encoding": "base",
    "kvmodels.encoding.key_number": "KeyNumber",
    "kvmodels.encoding.typed_json": "value_to_json",
    "kvmodels.engines.base": "Engine Snapshot",
    "kvmodels.engines.group_commit": "GroupCommitter",
    "kvmodels.engines.opening": "open_engine",
    "kvmodels.operations": "AtomicWrite Check CommitResult Entry",
    "kvmodels.signals": "Signals Signal ChangeSignal",
    "kvmodels.testing.virtual_time": "VirtualTime",
    "kvmodels.ulid": "ULID",
    "kvmodels.values": "KvArray KvMap KvU64 UNDEFINED",
}


@pytest.mark.parametrize("path", DOCUMENTED)
def test_a_documented_path_has_its_names(path):
    module = importlib.import_module(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(getattr(module, name) is not None for name in DOCUMENTED[path].split())


def test_every_old_path_is_listed():
    assert OLD.keys() == MOVED.keys()


@pytest.mark.parametrize("path", OLD)
def test_an_old_path_works_and_names_the_new_one(path, monkeypatch):
    for name in MOVED:
        monkeypatch.delitem(sys.modules, name, raising=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = importlib.import_module(path)
        found = [getattr(module, name) for name in OLD[path].split()]
    new = importlib.import_module(MOVED[path])
    assert [id(one) for one in found] == [id(getattr(new, name)) for name in OLD[path].split()]
    texts = [str(one.message) for one in caught if one.category is DeprecationWarning]
    assert f"{path} has moved: import from {MOVED[path]}" in texts


def test_the_warning_points_to_the_line_that_imports():
    sys.modules.pop("kvmodels.values", None)
    with pytest.warns(DeprecationWarning, match=r"kvmodels\.values has moved") as caught:
        from kvmodels.values import KvMap  # type: ignore[import-not-found]  # noqa: F401
    assert caught[0].filename == __file__


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"kvmodels\.nothing"):
        importlib.import_module("kvmodels.nothing")
