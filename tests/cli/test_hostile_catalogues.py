"""``inspect`` of catalogues whose names are code: whoever writes to a store can write its catalogue too."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kvmodels import Database, Index, Indexed, IndexStatus, KvModel, PrimaryKey, Q
from kvmodels.catalog.catalogue import IndexState
from kvmodels.cli.model_source import model_source
from kvmodels.flows.describe.catalogue import CollectionDescription
from kvmodels.schema.describe.describe import ColumnDescription, IndexDescription

CODE = 'open("ran", "w")'
HOSTILE = (
    f'x"):\n    id: PrimaryKey[int]\n{CODE}\nclass Y(KvModel, collection="y',
    f"x'):\n    pass\n{CODE}\n#",
    f"a\n{CODE}",
    f"a\r{CODE}",
    f"[{CODE}]",
    f"list[{CODE}]",
    f"int | {CODE}",
    f"{CODE}\x00",
    "ｏｐｅｎ('ran', 'w')",
    "ｏｐｅｎ",
    "ｃlass",
    "größe",
    "class",
    "model_config",
    "__class__",
    "__import__",
    "Meta",
    "MODELS",
    "a.b",
    "a\u2028b",
    "\u202e",
    "",
    "(" * 300,
    "int",
    "id",
)
NAMES = """
    KvModel PrimaryKey ForeignKey Index Indexed MultiIndexed Unique UniqueConstraint AggregateIndex Annotated Any Q
    KeyNumber ULID UUID Decimal IPv4Address IPv6Address IPvAnyAddress datetime bool int float str bytes list set
    frozenset dict tuple CASCADE SET_NULL AsyncDatabase MODELS db
"""
ALLOWED = frozenset(NAMES.split())


class Town(KvModel, collection="towns"):
    id: PrimaryKey[int]
    name: Indexed[str]
    size: float = 0.0
    tags: list[str] = []

    class Meta:
        indexes = (Index("name", where=Q(size__gt=float("-inf")) & Q(name="x"), include=("size",), name="big"),)


texts = st.sampled_from(HOSTILE) | st.text(max_size=20)
columns = st.builds(
    ColumnDescription,
    texts,
    texts | st.sampled_from(("str", "int")),
    descending=st.booleans(),
    nullable=st.booleans(),
    many=st.booleans(),
    computed=st.booleans(),
    fold=st.sampled_from((None, "lower")),
)
indexes = st.builds(
    IndexDescription,
    texts,
    st.sampled_from(("index", "unique", "foreign_key", "aggregate")),
    st.lists(columns, min_size=1, max_size=2).map(tuple),
    unique=st.booleans(),
    nulls=texts,
    condition=st.sampled_from((None, "Q(id=1)", "Q(**{'a b': 1})", "Q(id=...)")),
    included=st.lists(texts, max_size=2).map(tuple),
    sums=st.lists(texts, max_size=2).map(tuple),
    references=st.none() | texts,
    on_delete=texts,
)
collections = st.builds(
    CollectionDescription,
    texts,
    st.none(),
    st.integers(1, 9),
    st.just(1),
    st.dictionaries(texts, texts, max_size=4),
    st.lists(columns, min_size=1, max_size=2).map(tuple),
)


def foreign_code(source: str) -> Iterator[str]:
    """Yield the parts of a printed module that are not declarations made of the names of the library."""
    module = ast.parse(source)
    classes = {node.name for node in module.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and node.id not in ALLOWED | classes and not isinstance(node.ctx, ast.Store):
            yield node.id
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("str", "datetime"):
            yield ast.unparse(node)
        if isinstance(node, (ast.stmt, ast.Lambda, ast.NamedExpr)) and not isinstance(
            node, (ast.ClassDef, ast.AnnAssign, ast.Assign, ast.ImportFrom, ast.Import, ast.Expr)
        ):
            yield ast.unparse(node)


@given(st.lists(collections, max_size=3), st.lists(indexes, max_size=3))
def test_names_of_a_catalogue_are_never_code(found, declared):
    states = [
        IndexStatus(one.name, index, IndexState.READABLE, 1, declared=False) for one in found for index in declared
    ]
    source = model_source(found, states, "x://a\n" + CODE, CODE)
    assert list(foreign_code(source)) == []
    statements = [node for node in ast.parse(source).body if isinstance(node, ast.Expr)]
    assert len(statements) == 1, "only the docstring is an expression"
    assert source.isprintable() or all(line.isprintable() for line in source.split("\n"))


def test_the_module_of_collections_with_hostile_names_is_imported_without_effects(folder, run):
    annotations = {"__annotations__": {"id": PrimaryKey[int]}}
    models = [type("Hostile", (KvModel,), dict(annotations), collection=name) for name in HOSTILE if name]
    with Database("s.db", models=models):
        pass
    (folder / "seen.py").write_text(run("inspect", "-d", "s.db").stdout, "utf-8")
    command = [sys.executable, "-c", "import seen; print(len(seen.MODELS))"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{len(models)}\n", "")
    assert not (folder / "ran").exists()


def test_types_and_indexes_that_no_class_could_declare_are_comments():
    with Database("memory://", models=[Town]) as db:
        [one], states = db.collections(), list(db.indexes())
    fields = {**one.fields, "ｏｐｅｎ": "str", "größe": "ｏｐｅｎ('ran', 'w')", "inner": "list[shop.Inner] | None"}
    index = replace(states[0].index, name="evil", columns=(replace(states[0].index.columns[0], name=f"a\n{CODE}"),))
    source = model_source([replace(one, fields=fields)], [*states, replace(states[0], index=index)])
    assert "    # the field 'ｏｐｅｎ' cannot be declared\n" in source
    assert "    größe: Any\n" in source
    assert "    inner: list[Any] | None\n" in source
    assert f"    # not declared here: index evil (a\\n{CODE})\n" in source
    assert "where=Q(name='x') & Q(size__gt=float('-inf'))" in source
    module: dict[str, object] = {}
    exec(source, module)
    assert len(module["MODELS"]) == 1  # type: ignore[arg-type]
