"""Modules that are loaded when they are first used: once, by one thread, and again after a failure."""

from __future__ import annotations

import functools
import importlib
import re
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from kvmodels import KvModel, PrimaryKey
from kvmodels._support.lazy_modules import deferred_modules
from tests.source_tree import PACKAGE, module_parts, python_files


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one deferred module, ``late``; a test writes the module."""
    folder = tmp_path / "early"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from kvmodels._support.lazy_modules import deferred_modules\n"
        "loads = []\n__getattr__ = deferred_modules(__name__, 'late')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("early", "early.late"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    return folder


def test_a_module_is_loaded_at_its_first_use_and_then_the_same_for_all(package, monkeypatch: pytest.MonkeyPatch):
    (package / "late.py").write_text("import early\nearly.loads.append(1)\ndef number():\n    return 1\n")
    early = importlib.import_module("early")
    first, second = early.late, early.late

    assert early.loads == []
    assert "early.late" not in sys.modules
    assert repr(first) == "<module 'early.late', loaded when it is used>"
    assert first.number() == second.number() == 1
    real = importlib.import_module("early.late")

    assert early.loads == [1]
    monkeypatch.setattr(real, "number", lambda: 2)
    assert first.number() == 2
    monkeypatch.setattr(first, "number", lambda: 3)
    assert real.number() == second.number() == 3


def test_what_is_set_before_the_first_use_is_set_in_the_module(package):
    (package / "late.py").write_text("number = 1\n")
    early = importlib.import_module("early")
    early.late.number = 2

    assert early.late.number == importlib.import_module("early.late").number == 2


def test_threads_that_use_it_at_once_wait_for_one_loading(package):
    (package / "late.py").write_text(
        "import early, time\nearly.loads.append(1)\ntime.sleep(0.05)\ndef number():\n    return 1\n"
    )
    early = importlib.import_module("early")
    late = early.late

    gate, seen = threading.Barrier(8), []

    def use() -> None:
        gate.wait()
        seen.append(late.number())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 8
    assert early.loads == [1]


def test_what_failed_is_tried_again_at_the_next_use(package):
    (package / "late.py").write_text(
        "import early\nearly.loads.append(1)\nif len(early.loads) == 1:\n    raise KeyboardInterrupt\nnumber = 1\n"
    )
    early = importlib.import_module("early")
    late = early.late

    with pytest.raises(KeyboardInterrupt):
        _ = late.number
    assert late.number == 1
    assert early.loads == [1, 1]


def test_a_name_that_is_no_deferred_module_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"'kvmodels\.flows' has no attribute 'nothing'"):
        deferred_modules("kvmodels.flows", "scrub")("nothing")


def listed(package: str) -> set[str]:
    """The modules that a package of the library defers."""
    text = (PACKAGE.joinpath(*package.split(".")[1:]) / "__init__.py").read_text("utf-8")
    return set(re.findall(r'"(\w+)"', text.partition("deferred_modules(")[2].partition(")")[0]))


PACKAGES = [
    ".".join(("kvmodels", *module_parts(path)))
    for path in python_files()
    if path.name == "__init__.py" and "deferred_modules(" in path.read_text("utf-8")
]


@functools.cache
def imported_names() -> dict[str, set[str]]:
    """Return what the package imports from each module by ``from``."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in python_files():
        text = path.read_text("utf-8")
        for module, names in re.findall(r"^from ([\w.]+) import \(?([^()]*?)\)?$", text, flags=re.MULTILINE):
            found[module] |= {name.split(" as ")[0].strip() for name in names.split(",") if name.strip()}
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_the_modules_that_are_listed_exist_and_are_imported_as_modules(package):
    as_modules = imported_names()[package]
    assert listed(package)
    assert listed(package) <= as_modules
    folder = PACKAGE.joinpath(*package.split(".")[1:])
    for name in listed(package):
        assert (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


WHAT_IS_LOADED = """
import sys
from kvmodels import Database, Field, Indexed, KvModel, PrimaryKey, Unique
class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
with Database(models=[User]) as db:
    db[User].create(id=1, email="ada@x.org")
    assert db[User].get(email="ada@x.org").id == 1
print(*sys.modules)
"""


def test_a_small_program_loads_no_event_loop_no_other_engine_and_no_rare_flow():
    done = subprocess.run([sys.executable, "-c", WHAT_IS_LOADED], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    rare = {"apply", "create", "dump", "lock", "migrate", "namespace", "scrub", "watch"}
    absent = {
        "asyncio",
        "lmdb",
        "sqlite3",
        "v8serialize",
        "kvmodels.engines.lmdb.engine",
        "kvmodels.engines.sqlite.engine",
    }
    assert not loaded & absent
    assert not {name for name in loaded if name.startswith("kvmodels.flows.") and name.split(".")[-1] in rare}
    assert "kvmodels.flows.writing.records" in loaded


WHAT_NAMES_LOAD = """
import sys
from kvmodels import Database, Field, Indexed, KvModel, PrimaryKey, Unique
print(*sys.modules)
class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
print(*sys.modules)
"""


def test_a_program_that_opens_no_store_loads_nothing_of_one_and_compiles_no_model_before_it_has_one():
    done = subprocess.run([sys.executable, "-c", WHAT_NAMES_LOAD], capture_output=True, text=True, check=True)
    of_names, with_a_model = (set(line.split()) for line in done.stdout.splitlines())
    stores = {f"kvmodels.{name}" for name in ("api.core", "runtime.sync", "engines.contract", "api._sync.kv")}
    stores |= {"kvmodels.flows.context", "kvmodels.flows.effects", "kvmodels.api._sync.transaction", "msgpack"}
    assert not with_a_model & (stores | {"difflib", "logging", "pydantic.networks", "pydantic.root_model"})
    # pydantic looks for its plugins, by all metadata of installed packages, when a first class is built.
    assert not of_names & {
        "kvmodels.schema.compile.schema",
        "kvmodels.schema.definition.definition",
        "pydantic.plugin._loader",
    }
    assert {"kvmodels.schema.compile.schema", "pydantic.plugin._loader"} <= with_a_model


def test_the_base_of_models_is_built_when_it_is_used_and_models_at_once():
    class Reader(KvModel, collection="readers"):
        id: PrimaryKey[int]

    assert Reader.__pydantic_complete__
    assert "defer_build" not in {**KvModel.model_config, **Reader.model_config}
    assert KvModel.model_json_schema()["properties"] == {}
    assert isinstance(TypeAdapter(KvModel).validate_python({}), KvModel)
