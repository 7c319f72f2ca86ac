"""Run many command lines in one process, as ``kvmodels`` runs one; ``python -m tests.cli.many_commands FILE``.

The file holds a JSON list of lists of words. After each command, its exit code is printed between two marks, on stdout
and on stderr.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kvmodels.cli.main import main

MARK = "\x1e"


def run_all(lines: list[list[str]]) -> None:
    for words in lines:
        sys.argv = ["kvmodels", *words]
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        for stream in (sys.stdout, sys.stderr):
            stream.write(f"{MARK}{code}{MARK}\n")
            stream.flush()
        for name in [name for name in sys.modules if name.endswith("_app")]:
            del sys.modules[name]


if __name__ == "__main__":
    run_all(json.loads(Path(sys.argv[1]).read_text("utf-8")))
