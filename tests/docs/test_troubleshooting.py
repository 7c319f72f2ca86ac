"""The page about symptoms names commands, methods and errors that exist."""

from __future__ import annotations

import re
from typing import Any

import typer.main

import kvmodels
from kvmodels.cli.application import application
from tests.source_tree import REPOSITORY

PAGE = (REPOSITORY / "docs" / "guides" / "troubleshooting.md").read_text("utf-8")


def is_command(words: list[str]) -> bool:
    """Whether the words of a line begin with a command, and with its sub-command if they name one."""
    command: Any = typer.main.get_command(application)
    for word in words:
        if word.isupper() or word.startswith("-"):
            break
        commands = getattr(command, "commands", {})
        if word not in commands:
            return False
        command = commands[word]
    return True


def test_every_command_exists():
    lines = re.findall(r"`kvmodels ([^`]+)`", PAGE)
    assert len(lines) > 10
    assert [line for line in lines if not is_command(line.split())] == []


def test_every_method_of_a_database_exists():
    names = set(re.findall(r"`db\.(\w+)\(", PAGE))
    assert len(names) > 10
    assert {name for name in names if not hasattr(kvmodels.Database, name)} == set()
    assert {name for name in re.findall(r"`db\.kv\.(\w+)\(", PAGE) if not hasattr(kvmodels.Kv, name)} == set()


def test_every_error_exists():
    names = set(re.findall(r"`(\w+Error)`", PAGE))
    assert len(names) > 8
    assert {name for name in names if not hasattr(kvmodels, name)} == set()


def test_the_check_of_commands_notices():
    assert is_command(["indexes", "build", "NAME"])
    assert not is_command(["indexes", "make", "NAME"])
    assert not is_command(["repair"])
