"""The help of every command, and the shell."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from kvmodels import open_kv
from kvmodels.cli.application import application
from kvmodels.cli.registration import SECTIONS
from kvmodels.cli.wording import COMMANDS
from tests.cli.test_terminals import LINES, TYPED
from tests.source_tree import REPOSITORY


def command_names(group: TyperGroup, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*before, name)
        if isinstance(command, TyperGroup):
            yield from command_names(command, (*before, name))


def every_command() -> set[tuple[str, ...]]:
    command = get_command(application)
    assert isinstance(command, TyperGroup)
    return set(command_names(command))


def test_every_command_is_run_on_a_terminal_and_in_a_pipe():
    assert every_command() <= {name for _, words in LINES for name in (words[:1], words[:2])} | TYPED


def test_every_command_explains_itself_and_has_the_common_options(run):
    whole = run("--help").stdout
    for words in sorted(every_command()):
        text = run(*words, "-h").stdout
        assert text.startswith(f"Usage: kvmodels {' '.join(words)} [OPTIONS]"), words
        assert all(f"  {option} " in text for option in ("--json", "--readonly", "--silent")), words
        assert "--database URL|MODULE:OBJECT" in text
        first = text.splitlines()[2].strip()
        assert first.endswith("."), words
        assert len(words) > 1 or first.rstrip(".") in whole, words
    assert "..." not in whole.partition("[ARGS]...")[2], "a short help does not fit"
    titles = [line.rstrip(":") for line in whole.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options", *(section for section in SECTIONS if section in titles)]


def test_the_version_is_an_option_too(run):
    assert run("--version").stdout == run("version").stdout


def test_every_phrase_that_is_reworded_is_one_of_the_library():
    sources = [path.read_text("utf-8") for path in (REPOSITORY / "kvmodels").rglob("*.py") if "cli" not in path.parts]
    for call, _ in COMMANDS:
        assert any(call in source for source in sources), call


def test_unknown_commands_and_options_are_refused(run):
    for words, message in ((["kyes"], "No such command 'kyes'"), (["keys", "--lmit", "3"], "No such option: --lmit")):
        result = run(*words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr


@pytest.fixture
def without_ipython(monkeypatch):
    """IPython is one of the development packages; without it, the shell is that of Python."""
    monkeypatch.setattr("kvmodels.cli.commands.shell.importlib.util.find_spec", lambda _: None)


@pytest.mark.usefixtures("without_ipython")
def test_the_shell_has_the_store_and_the_models(run):
    shown = run("shell", "-d", "shop_app:shop", stdin="print(db[Book].count(), kv is db.kv, models)\n").output
    assert "kvmodels shell: db, kv, models, Book" in shown
    assert "0 True {'books': <class 'shop_app.Book'>}" in shown


def test_the_shell_is_ipython_if_that_is_installed(folder, run, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "IPython"]:
        monkeypatch.delitem(sys.modules, name)
    (folder / "IPython.py").write_text(
        "def start_ipython(argv, user_ns):\n    print('Book' in argv[0], sorted(user_ns))\n"
    )
    try:
        assert run("shell", "-d", "shop_app:shop").stdout == "True ['Book', 'db', 'kv', 'models']\n"
    finally:
        del sys.modules["IPython"]


@pytest.mark.usefixtures("without_ipython")
def test_a_readonly_shell_does_not_write(folder, run):
    with open_kv("kv.db") as kv:
        kv.set(("a",), 1)
    shown = run("shell", "--readonly", "-d", "kv.db", stdin="kv.set(('a',), 2)\n").output
    assert "ReadOnlyError" in shown
    assert run("get", "a", "-d", "kv.db").stdout == "1\n"
