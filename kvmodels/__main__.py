"""``python -m kvmodels``: the command ``kvmodels``.

Rules of this module: nothing but the call.
"""

from __future__ import annotations

from kvmodels.cli.main import main

if __name__ == "__main__":
    main()
