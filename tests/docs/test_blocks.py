"""Every fenced block of the documentation runs: code, what it prints, and the commands for the shell.

Rules for pages: a ``python`` block runs in the namespace of the blocks above it, in a folder of its own. A ``text``
block is what the ``python`` block directly above it prints. A ``sh`` block names commands that exist here. A
``console`` block is a session in a shell: ``$ kvmodels ...`` with what it prints, where ``...`` stands for any text;
``$ echo $?`` prints the exit code, and ``$ export NAME=value`` holds to the end of the page. A ``python`` block that
begins with the comment ``# name.py`` is also a file of this name, for these commands. A ``ts`` block is a program of
Deno, which ``tests/serve/test_guide.py`` runs. No other languages, no fence without one, and nothing that switches a
block off.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, cast

import pytest
from packaging.version import InvalidVersion, Version
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from kvmodels.cli.application import application
from kvmodels.engines.memory.engine import MemoryEngine
from tests.connect.scripted import ACCESS_TOKEN, ScriptedServer
from tests.source_tree import REPOSITORY, shown

PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
ON_A_SERVER = [path for path in PAGES if "DATABASE_URL" in path.read_text("utf-8")]
IN_ETCD = [path for path in PAGES if "ETCD_URL" in path.read_text("utf-8")]
OVER_CONNECT = [path for path in PAGES if "KV_CONNECT_URL" in path.read_text("utf-8")]
COMMANDS = set(cast("TyperGroup", get_command(application)).commands)
LANGUAGES = {"console", "python", "sh", "text", "ts"}
FILE = re.compile(r"# (\w+\.py)\n")
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)\n(?P<body>(?:.*\n)*?)(?P=indent)```[ ]*$", re.MULTILINE)


class Block(NamedTuple):
    """One fenced block: its language, its text, and the line of the page on which the text begins."""

    language: str
    text: str
    line: int


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page in their order."""
    found = []
    for match in FENCE.finditer(page):
        indent = len(match["indent"])
        text = "".join(line[indent:] or "\n" for line in match["body"].splitlines(keepends=True))
        found.append(Block(match["info"].strip(), text, page.count("\n", 0, match.start("body")) + 1))
    return found


def unlabelled(page: str) -> list[str]:
    """Fences whose language is missing, unknown, or followed by anything else."""
    return [
        f"line {block.line}: {block.language or 'no language'}"
        for block in blocks_of(page)
        if block.language not in LANGUAGES
    ]


def run_page(page: str, name: str) -> list[str]:
    """Run the blocks of a page; says where the printed text differs from the text block."""
    module = ModuleType(name)
    known, paths, environment = {*sys.modules}, [*sys.path], {**os.environ}
    sys.modules[name] = module  # where pydantic looks up annotations and pickle looks up classes
    wrong, printed = [], None
    try:
        for block in blocks_of(page):
            if block.language == "console":
                wrong += session_differences(block)
            if match := FILE.match(block.text):
                Path(match[1]).write_text(block.text, "utf-8")
            if block.language == "python":
                # Empty lines in front, so that a traceback shows the line of the page.
                code = compile("\n" * (block.line - 1) + block.text, f"<{name}>", "exec")
                with contextlib.redirect_stdout(io.StringIO()) as output:
                    exec(code, vars(module))
                printed = output.getvalue()
            elif block.language == "text":
                if printed is None:
                    wrong.append(f"line {block.line}: no python block above this text")
                elif printed.rstrip() != block.text.rstrip():
                    wrong.append(f"line {block.line}: printed\n{printed}")
                printed = None
    finally:
        sys.path[:] = paths
        os.environ.clear()
        os.environ.update(environment)
        for other in [other for other in sys.modules if other not in known and Path(f"{other}.py").exists()]:
            del sys.modules[other]
        del sys.modules[name]
    return wrong


def session_differences(block: Block) -> list[str]:
    """Run the commands of a session; says where the printed text differs from the block."""
    wrong, exit_code = [], 0
    for text in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, expected = text.partition("\n")
        match shlex.split(line):
            case ["kvmodels", *words]:
                result = CliRunner().invoke(application, words, prog_name="kvmodels")
                exit_code, printed = result.exit_code, result.output
            case ["echo", "$?"]:
                printed = f"{exit_code}\n"
            case ["export", assignment]:
                variable, _, value = assignment.partition("=")
                os.environ[variable], printed = value, ""
            case _:
                printed = "not a command of these sessions\n"
        if not doctest.OutputChecker().check_output(expected.strip() + "\n", printed.strip() + "\n", doctest.ELLIPSIS):
            wrong.append(f"line {block.line}: {line} printed\n{printed}")
    return wrong


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE))


def extras() -> set[str]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    return set(project["optional-dependencies"])


def test_no_extra_has_the_name_of_a_version():
    """Pip 25.1 takes `extra == "v8"` for a comparison of versions, and then refuses to install anything."""

    def is_version(name: str) -> bool:
        try:
            Version(name)
        except InvalidVersion:
            return False
        return True

    assert is_version("v8")
    assert not any(is_version(name) for name in extras())


def unknown_command(line: str) -> bool:
    """Whether a line for the shell is something that this repository does not offer."""
    match line.split():
        case [".ci/pythons", version, "--", *tests]:
            return version not in (REPOSITORY / ".ci/pythons").read_text("utf-8") or not all(
                (REPOSITORY / path).exists() for path in tests
            )
        case ["make", *targets]:
            return not targets or not set(targets) <= make_targets()
        case ["pip", "install", requirement, *others]:
            match = re.fullmatch(r"'?kvmodels(?:\[([a-z0-9,-]+)\])?'?", requirement)
            known = match is not None and set((match[1] or "").split(",")) - {""} <= extras()
            return not known or not {*others} <= {"httpx2", "uvicorn"}
        case ["export", *_]:
            return False
        case ["kvmodels", command, *_]:
            return command not in COMMANDS
        case [".venv/bin/python", "-m", "pytest", *arguments]:
            paths = [argument for argument in arguments if argument.startswith("tests/")]
            return not all((REPOSITORY / path).exists() for path in paths)
        case [".venv/bin/python", "-m", module, *_] if module.startswith("tests."):
            return not (REPOSITORY / module.replace(".", "/")).with_suffix(".py").is_file()
        case [".venv/bin/python", script]:
            return not (REPOSITORY / script).is_file()
        case ["uvicorn", "app:app"]:  # the file of the tutorial
            return False
        case [".venv/bin/uvicorn", application]:
            return not (REPOSITORY / application.partition(":")[0].replace(".", "/")).with_suffix(".py").is_file()
        case _:
            return True


def unknown_commands(page: str) -> list[str]:
    """Lines of the sh blocks that nobody could run."""
    lines = [line for block in blocks_of(page) if block.language == "sh" for line in block.text.splitlines()]
    return [line for line in lines if line and unknown_command(line)]


def require_true(path):
    page = path.read_text("utf-8")
    assert unlabelled(page) == []
    assert unknown_commands(page) == []
    assert run_page(page, f"page_{path.stem.replace('-', '_')}") == []


@pytest.mark.parametrize(
    "path", [path for path in PAGES if path not in (*ON_A_SERVER, *IN_ETCD, *OVER_CONNECT)], ids=shown
)
def test_every_block_of_a_page_runs_and_prints_what_the_page_says(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    require_true(path)


@pytest.mark.servers
@pytest.mark.parametrize("path", ON_A_SERVER, ids=shown)
def test_every_block_of_a_page_runs_on_a_server(path, tmp_path, monkeypatch, databases):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", databases.url())
    require_true(path)


@pytest.mark.servers
@pytest.mark.parametrize("path", IN_ETCD, ids=shown)
def test_every_block_of_a_page_runs_in_etcd(path, tmp_path, monkeypatch, url_of):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETCD_URL", url_of("etcd34"))
    require_true(path)


@pytest.mark.parametrize("path", OVER_CONNECT, ids=shown)
def test_every_block_of_a_page_runs_over_kv_connect(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DENO_KV_ACCESS_TOKEN", ACCESS_TOKEN)
    with ScriptedServer(MemoryEngine()) as server:
        monkeypatch.setenv("KV_CONNECT_URL", server.url)
        require_true(path)


def test_there_are_pages():
    assert {"README.md", "docs/tutorial.md", "docs/concepts/rules.md"} <= {shown(path) for path in PAGES}


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```\nx\n```\n", "no language"),
        ("```python {.skip}\nx\n```\n", "python {.skip}"),
        ("    ```toml\n    x = 1\n    ```\n", "toml"),
    ],
)
def test_fences_without_a_known_language_are_found(page, message):
    assert message in unlabelled(page)[0]


def test_blocks_share_a_namespace_and_their_output_is_compared():
    page = "```python\nx = 1\n```\n\n  ```python\n  if x:\n      print(x + 1)\n  ```\n\n```text\n{}\n```\n"
    assert run_page(page.replace("{}", "2"), "page_sample") == []
    assert run_page(page.replace("{}", "3"), "page_sample") == ["line 11: printed\n2\n"]
    assert "page_sample" not in sys.modules


def test_sessions_run_and_their_output_is_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "```console\n$ export A_NAME=x\n$ kvmodels keys -d a.db\nError: no store...\n$ echo $?\n{}\n$ ls\n```\n"
    assert run_page(page.replace("{}", "2"), "page_sample") == ["line 2: ls printed\nnot a command of these sessions\n"]
    assert len(run_page(page.replace("{}", "4"), "page_sample")) == 2
    assert "A_NAME" not in os.environ


def test_a_text_block_needs_code_that_prints_it():
    assert run_page("```text\nx\n```\n", "page_sample") == ["line 2: no python block above this text"]


def test_a_block_that_fails_is_an_error_with_the_line_of_the_page():
    with pytest.raises(ZeroDivisionError) as caught:
        run_page("Text.\n\n```python\n1 / 0\n```\n", "page_sample")
    assert caught.traceback[-1].lineno + 1 == 4


@pytest.mark.parametrize(
    "line", ["make nothing", "make", "pip install other", "pip install 'kvmodels[nothing]'", "rm -r x",
             "kvmodels nothing", ".venv/bin/python nothing.py", ".venv/bin/python -m tests.nothing 1",
             ".venv/bin/python -m pytest tests/nothing.py"]
)  # fmt: skip
def test_commands_that_do_not_exist_are_found(line):
    assert unknown_commands(f"```sh\n{line}\n```\n") == [line]


def test_commands_that_exist_are_accepted():
    assert unknown_commands("```sh\nmake demo\nmake check test\n\npip install 'kvmodels[fastapi,demo]'\n```\n") == []
