"""Passwords in the name of a database are never printed, however they are written."""

from __future__ import annotations

import pytest

from kvmodels.cli.output import redacted, without_password
from kvmodels.engines.postgres.engine import PostgresEngine

SECRET = "s3cr3t"
NAMES = [
    f"host=h password='{SECRET} x' user=a",
    f"host=h password = '{SECRET} \\'{SECRET}' user=a",
    f"host=h password={SECRET}\\ {SECRET} user=a",
    f"host=h password = {SECRET} user=a",
    f"host=h password='{SECRET} x",
    f'host=h sslpassword="{SECRET} x" application_name="b"',
    f"postgresql://ada:{SECRET} {SECRET}@host/x",
    f"postgresql://ada:{SECRET}@{SECRET}@host/x?password={SECRET}",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_password_is_redacted_as_a_whole_in_a_text_and_in_its_repr(name):
    for text in (f"no store {name}", f"no store {name!r}. Give the path of a store.", f"cannot open {name}: refused"):
        assert SECRET not in redacted(text)
        assert "***" in redacted(text)


@pytest.mark.parametrize("name", NAMES)
def test_no_command_prints_it(run, name, monkeypatch):
    monkeypatch.setitem(PostgresEngine.__init__.__kwdefaults__, "busy_timeout", 0.01)
    for command in ("keys", "inspect", "info"):
        result = run(command, "-d", name)
        assert result.exit_code != 0
        assert SECRET not in result.stdout + result.stderr


def test_other_texts_stay_as_they_are():
    for text in (
        "Give user= and password=, or set ETCDCTL_USER.",
        "Give password= or nothing.",
        "password=",
        "cannot open postgresql://host:5432/db and 'a@b'",
    ):
        assert redacted(text) == text
    assert (
        without_password(f"postgresql://ada:{SECRET} x@host/x?password={SECRET}&b=c") == "postgresql://ada@host/x?b=c"
    )
