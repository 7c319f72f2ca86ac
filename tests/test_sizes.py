"""Modules, functions and parameter lists stay small; there are no exemptions."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.source_tree import REPOSITORY, Function, functions, nodes, parse, python_files, sample, shown

MAX_CODE_LINES = 400
MAX_BODY_LINES = 40
MAX_POSITIONAL = 5

CHECKED = (REPOSITORY / "kvmodels", REPOSITORY / "benchmarks", REPOSITORY / "examples")


def body_lines(function: Function) -> int:
    """Lines from the first statement behind the docstring to the last one."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    if not body:
        return 0
    return (function.body[-1].end_lineno or 0) - min(_first_line(statement) for statement in body[:1]) + 1


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def positional_parameters(function: Function) -> list[str]:
    """Names of what can be passed by position, ``self`` and ``cls`` left out."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"], ["mcs"]) else names


def too_large(tree: ast.AST) -> list[str]:
    """The functions of a module that are too long or take too much by position."""
    found = []
    for function in functions(tree):
        if (lines := body_lines(function)) > MAX_BODY_LINES:
            found.append(f"line {function.lineno}: {function.name} has {lines} lines, at most {MAX_BODY_LINES}")
        if len(names := positional_parameters(function)) > MAX_POSITIONAL:
            found.append(f"line {function.lineno}: {function.name} takes {len(names)} positional parameters")
    return found


def code_lines(path: Path) -> int:
    """Return the number of lines of a module without blank lines, comments and docstrings."""
    lines = path.read_text(encoding="utf-8").splitlines()
    code = {number for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")}
    for node in nodes(parse(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code)


def test_no_module_has_more_code_than_the_limit():
    sizes = {shown(path): code_lines(path) for path in python_files(*CHECKED)}
    assert not {name: lines for name, lines in sizes.items() if lines > MAX_CODE_LINES}


def test_docstrings_comments_and_blank_lines_are_not_code(tmp_path):
    path = tmp_path / "sample.py"
    path.write_text('"""Text.\n\nMore.\n"""\n\n# why\nx = 1\n\n\ndef f():\n    """Text."""\n    return x\n')
    assert code_lines(path) == 3


def test_no_function_is_too_long_or_takes_too_many_positional_parameters():
    found = [f"{shown(path)} {text}" for path in python_files(*CHECKED) for text in too_large(parse(path))]
    assert not found, "\n".join(found)


def test_the_size_check_notices_a_long_function():
    body = "\n".join("    x = 1" for _ in range(41))
    assert too_large(sample(f"def f():\n{body}")) == ["line 1: f has 41 lines, at most 40"]
    assert too_large(sample(f'def f():\n    """Text.\n\n    More.\n    """\n{body}')) == [
        "line 1: f has 41 lines, at most 40"
    ]
    assert too_large(sample(f'def f():\n    """Text."""\n{body[:-10]}')) == []


def test_the_size_check_counts_nested_functions_and_methods():
    body = "\n".join("            x = 1" for _ in range(41))
    nested = f"class A:\n    def f(self):\n        def g():\n{body}\n        return g"
    assert [text.split(" has ")[0] for text in too_large(sample(nested))] == ["line 2: f", "line 3: g"]


def test_the_size_check_notices_many_positional_parameters():
    assert too_large(sample("def f(a, b, c, d, e, f): ..."))
    assert too_large(sample("class A:\n    def f(self, a, b, c, d, e, f): ..."))
    assert too_large(sample("class A:\n    def f(self, a, b, c, d, e): ...")) == []
    assert too_large(sample("def f(a, b, c, d, e, *, f, g): ...")) == []
