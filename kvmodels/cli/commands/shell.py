"""``shell``: an interactive Python with the store.

Rules of this module: IPython is used if it is installed; nothing else of the package knows it.
"""

from __future__ import annotations

import code
import importlib.util
import pkgutil
from typing import Any

from kvmodels.cli.command_line import CommandLine


def shell(line: CommandLine) -> None:
    """Start Python with db, kv and the models.

    IPython is used if it is installed. Queries that no index serves are allowed.
    """
    with line.open(writes=not line.readonly) as store, store.db.allow_scans():
        names: dict[str, Any] = {"db": store.db, "kv": store.kv, "models": store.models}
        names |= {model.__name__: model for model in store.models.values()}
        banner = f"kvmodels shell: {', '.join(names)}"
        if importlib.util.find_spec("IPython") is None:
            code.interact(banner, local=names, exitmsg="")
            return
        start: Any = pkgutil.resolve_name("IPython:start_ipython")
        start(argv=[f"--TerminalInteractiveShell.banner1={banner}\n"], user_ns=names)
