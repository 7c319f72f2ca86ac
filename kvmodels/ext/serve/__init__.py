"""A server for Deno: stores of kvmodels, served by KV Connect, the protocol of ``Deno.openKv("https://...")``.

Rules of this package: ``KvConnectServer`` is an ASGI application, which any server can mount; ``serve`` runs it alone.
A request is checked completely before the engine sees it. A text that leaves the server has no token, no path and no
data in it. No other module of the library imports this package; it needs the extra ``serve``.
"""

from __future__ import annotations

from kvmodels.errors import UnsupportedError

try:
    import hypercorn as _hypercorn
    import v8serialize as _v8serialize
except ModuleNotFoundError as missing:
    if missing.name not in ("hypercorn", "v8serialize"):
        raise
    raise UnsupportedError(
        "the server for Deno needs a package that is not installed",
        reason=missing.name,
        hint="Install it: pip install 'kvmodels[serve]'.",
    ) from missing

from kvmodels.ext.serve.access import AccessToken, ServedStore
from kvmodels.ext.serve.application import KvConnectServer
from kvmodels.ext.serve.http import serve

__all__ = ["AccessToken", "KvConnectServer", "ServedStore", "serve"]

del _hypercorn, _v8serialize
