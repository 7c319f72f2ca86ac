"""Errors can be relied on: stable codes, fixed messages, a hint at every place that raises, pickling."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import re

import pytest

import kvmodels
from kvmodels import errors
from kvmodels.errors import KvModelsError
from tests.source_tree import called_name, functions, nodes, parse, python_files, sample, shown

# A code is printed in logs and searched for in the documentation: it never changes its meaning.
CODES = {
    "KvModelsError": "KV000",
    "ModelDefinitionError": "KV101",
    "NonIdempotentValidatorError": "KV102",
    "DoesNotExist": "KV201",
    "MultipleObjectsReturned": "KV202",
    "BlobGoneError": "KV203",
    "IntegrityError": "KV300",
    "AlreadyExistsError": "KV301",
    "UniqueViolationError": "KV302",
    "ReferenceViolationError": "KV303",
    "ProtectedError": "KV304",
    "LoadConflictError": "KV305",
    "ExclusionViolationError": "KV306",
    "DanglingReferenceError": "KV805",
    "HistoryExpiredError": "KV806",
    "DecryptionError": "KV807",
    "ConcurrencyError": "KV400",
    "StaleObjectError": "KV401",
    "RetriesExhaustedError": "KV402",
    "LockLostError": "KV403",
    "TransactionConflictError": "KV404",
    "SinkPositionError": "KV405",
    "InvalidKeyError": "KV501",
    "InvalidValueError": "KV502",
    "InvalidArgumentError": "KV503",
    "ReservedKeyError": "KV504",
    "PrimaryKeyChangedError": "KV505",
    "TransactionAbortedError": "KV506",
    "TransactionSuspendedError": "KV507",
    "LimitExceededError": "KV600",
    "KeyTooLargeError": "KV602",
    "ValueTooLargeError": "KV603",
    "OperationTooLargeError": "KV604",
    "CatalogueFullError": "KV605",
    "BlobTooLargeError": "KV606",
    "QueryError": "KV700",
    "UnknownFieldError": "KV701",
    "UnknownLookupError": "KV702",
    "NoUsableIndexError": "KV703",
    "InvalidCursorError": "KV704",
    "InvalidLookupError": "KV706",
    "IndexChangedError": "KV705",
    "SchemaError": "KV800",
    "SchemaChangeRefusedError": "KV804",
    "SchemaMismatchError": "KV801",
    "IndexNotReadyError": "KV802",
    "DecodeError": "KV803",
    "EngineError": "KV900",
    "CommitUnknownError": "KV901",
    "EngineTimeoutError": "KV902",
    "SnapshotExpiredError": "KV903",
    "SnapshotLostError": "KV910",
    "ClosedError": "KV904",
    "ReadOnlyError": "KV905",
    "StorageFullError": "KV906",
    "ForeignFileError": "KV907",
    "UnsupportedError": "KV908",
    "ResumeExpiredError": "KV909",
    "TenantError": "KV1000",
    "TenantNotFoundError": "KV1001",
    "TenantRemovedError": "KV1002",
    "TenantModelError": "KV1003",
}

ERRORS: dict[str, type[KvModelsError]] = {
    name: value for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, KvModelsError)
}

# Parents that exist to be caught; nothing raises them.
CATCH_ONLY = {
    "KvModelsError",
    "IntegrityError",
    "ConcurrencyError",
    "LimitExceededError",
    "QueryError",
    "SchemaError",
}


def is_fixed(node: ast.expr, constants: frozenset[str]) -> bool:
    """Whether an expression is text that was written down: a literal, one of two, or a named constant."""
    match node:
        case ast.Constant(value=str()):
            return True
        case ast.IfExp(body=body, orelse=orelse):
            return is_fixed(body, constants) and is_fixed(orelse, constants)
        case ast.Name(id=name):
            return name in constants
        case ast.Attribute(attr="message"):
            return True  # that of another error, which is fixed where that one is raised
        case _:
            return False


def fixed_names(tree: ast.Module) -> frozenset[str]:
    """Module-level names that are bound to literal text."""
    return frozenset(
        target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Constant)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Name) and isinstance(statement.value.value, str)
    )


def message_parameters(tree: ast.Module) -> dict[str, tuple[str, int]]:
    """Functions that hand their parameter on as the message of an error: name to (parameter, position)."""
    found = {}
    calls = error_calls(tree)
    for function in functions(tree):
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        for call in calls:
            first = call.args[0] if call.args else None
            inside = function.lineno <= call.lineno <= (function.end_lineno or 0)
            if inside and isinstance(first, ast.Name) and first.id in names:
                position = names.index(first.id) - (names[0] in {"self", "cls"})
                found[function.name] = (first.id, position)
    return found


def error_calls(tree: ast.AST) -> list[ast.Call]:
    """Calls of the error classes, by whatever path they are named."""
    return [node for node in nodes(tree) if isinstance(node, ast.Call) and called_name(node) in ERRORS]


def careless_errors(tree: ast.Module) -> list[str]:
    """Places that make an error with a message put together, not a sentence, or without a hint."""
    constants, passed_on = fixed_names(tree), message_parameters(tree)
    parameters = frozenset(name for name, _ in passed_on.values())
    found = []
    for call in error_calls(tree):
        name = called_name(call)
        message = call.args[0] if call.args else None
        if message is None or not is_fixed(message, constants | parameters):
            found.append(f"line {call.lineno}: {name} needs a fixed message")
        elif isinstance(message, ast.Constant) and not is_sentence(str(message.value)):
            found.append(f"line {call.lineno}: {name}: a message starts small and ends without a full stop")
        if name in CATCH_ONLY:
            found.append(f"line {call.lineno}: {name} is only for catching")
        if ERRORS[name].default_hint is None and not any(k.arg in {"hint", None} for k in call.keywords):
            found.append(f"line {call.lineno}: {name} needs a hint")
    for node in nodes(tree):
        if isinstance(node, ast.Call) and (where := passed_on.get(called_name(node))):
            parameter, position = where
            given = [k.value for k in node.keywords if k.arg == parameter] or node.args[position : position + 1]
            if not given or not is_fixed(given[0], constants):
                found.append(f"line {node.lineno}: {ast.unparse(node.func)} needs a fixed message")
    return found


def is_sentence(text: str) -> bool:
    """A fixed sentence in lower case; names of code such as ``KvU64`` may stand first."""
    first = text.split(" ")[0]
    return bool(text) and not text.endswith(".") and (not first.istitle() or any(c in first for c in "._("))


def example(cls: type[KvModelsError]) -> KvModelsError:
    """An error with every attribute set."""
    return cls("something happened", hint="do something", **{name: (name, 1) for name in cls.attributes})


def test_codes_are_unique_and_stay():
    assert {name: cls.code for name, cls in ERRORS.items()} == CODES
    assert len(set(CODES.values())) == len(CODES)


def test_the_tree_drawn_in_the_module_lists_every_error_under_its_parent():
    drawn = errors.__doc__ or ""
    parents: list[str] = []
    for line in drawn.splitlines():
        name = line.lstrip(" │├└─").partition("(")[0].split(" ")[0]
        if name in ERRORS:
            level = line.index(name) // 4 - 1
            parents = [*parents[:level], name]
            assert level == 0 or ERRORS[name].__mro__[1] is ERRORS[parents[level - 1]], name
    assert all(re.search(rf"\b{name}\b", drawn) for name in ERRORS)


def test_every_error_is_listed_and_exported_by_the_package():
    assert {cls.__name__: cls for cls in errors.ERRORS} == ERRORS
    assert all(getattr(kvmodels, name) is cls for name, cls in ERRORS.items())


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_errors_survive_pickling_and_copying_with_their_data_and_notes(name):
    error = example(ERRORS[name])
    error.add_note("while loading")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert (str(again), again.hint, again.data) == (str(error), error.hint, error.data)
        assert again.__notes__ == ["while loading"]


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_errors_show_their_code_their_data_and_what_to_do(name):
    error = example(ERRORS[name])
    text = str(error)
    assert text.startswith(f"[{error.code}] something happened")
    assert text.endswith(". do something")
    assert all(attribute in text for attribute in ERRORS[name].attributes)


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_unknown_attributes_of_an_error_are_refused(name):
    with pytest.raises(TypeError, match="nonsense"):
        ERRORS[name]("something happened", nonsense=1)


def test_every_place_that_raises_gives_a_fixed_message_and_a_hint():
    found = [
        f"{shown(path)} {text}"
        for path in python_files()
        if path.name != "errors.py"
        for text in careless_errors(parse(path))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise DoesNotExist(f'no {x}', hint='h')", "needs a fixed message"),
        ("raise DoesNotExist('no ' + x, hint='h')", "needs a fixed message"),
        ("raise DoesNotExist('no %s' % x, hint='h')", "needs a fixed message"),
        ("raise errors.DoesNotExist(text, hint='h')", "needs a fixed message"),
        ("raise DoesNotExist()", "needs a fixed message"),
        ("raise DoesNotExist('No record.', hint='h')", "ends without a full stop"),
        ("raise EngineError('no engine')", "needs a hint"),
        ("raise QueryError('no', hint='h')", "is only for catching"),
        ("def f(text):\n    raise DoesNotExist(text, hint='h')\nf(f'{x}')", "f needs a fixed message"),
        ("def f(text):\n    raise DoesNotExist(text, hint='h')\nf(text=a + b)", "f needs a fixed message"),
    ],
)
def test_the_check_of_raised_errors_notices(source, message):
    assert message in "\n".join(careless_errors(sample(source)))


@pytest.mark.parametrize(
    "source",
    [
        "raise DoesNotExist('no record matches', hint='h')",
        "raise DoesNotExist('no' if x else 'none', model=m, hint=f'use {x}')",
        "TEXT = 'no record'\nraise DoesNotExist(TEXT, hint='h')",
        "def f(text):\n    raise DoesNotExist(text, hint='h')\nf('no record')",
        "raise ClosedError('the store is closed')",
        "raise DoesNotExist(error.message, hint=error.hint)",
    ],
)
def test_the_check_of_raised_errors_lets_pass_what_is_right(source):
    assert careless_errors(sample(source)) == []
