"""The command line of the benchmarks."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import arguments


@pytest.mark.parametrize(
    ("said", "parts"), [([], "usual"), (["growth", "page"], ["growth", "page"]), (["--rounds", "2"], "usual")]
)
def test_parts_need_not_be_named(said, parts):
    assert arguments(said).part == parts


def test_a_part_that_there_is_not_is_refused(capsys):
    with pytest.raises(SystemExit):
        arguments(["tables"])
    assert "invalid choice: 'tables'" in capsys.readouterr().err
