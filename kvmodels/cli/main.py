"""The entry point of the command ``kvmodels``.

Rules of this module: it works without the packages of the extra ``cli``, to say that they are missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from kvmodels.cli.standard_streams import complete_streams, run_with_streams


def _explain(**_options: object) -> None:
    sys.stderr.write("Error: the command needs packages that are not installed: pip install 'kvmodels[cli]'\n")
    sys.exit(2)


_run: Callable[..., object] = _explain
try:
    from kvmodels.cli.application import application
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] not in ("typer", "rich"):
        raise
except KeyboardInterrupt:
    sys.exit(130)
else:
    _run = application


def main() -> None:
    """Run the command with the arguments of the process, and exit with its exit code."""
    complete_streams()
    run_with_streams(partial(_run, prog_name="kvmodels"))
