"""A page in the browser that shows a store and changes it, on starlette-admin; the extra ``admin`` installs it.

``Admin(db).mount_to(app)`` adds it to an application, and the command ``kvmodels admin`` runs it alone.

Rules of this package: no other module imports it, so that the package works without starlette-admin. Pages are rendered
by the server and work without scripts.
"""

from __future__ import annotations

from kvmodels.errors import UnsupportedError

try:
    import starlette_admin as _starlette_admin
except ModuleNotFoundError as missing:
    if missing.name != "starlette_admin":
        raise
    raise UnsupportedError(
        "the admin page needs a package that is not installed",
        reason="starlette_admin",
        hint="Install it: pip install 'kvmodels[admin]'.",
    ) from missing

from kvmodels.ext.admin.backend import AdminAction, AdminPermission
from kvmodels.ext.admin.plugin import AdminPlugin
from kvmodels.ext.admin.site import Admin
from kvmodels.ext.admin.theme import AdminTheme
from kvmodels.ext.admin.token_auth import TokenAuth

__all__ = ["Admin", "AdminAction", "AdminPermission", "AdminPlugin", "AdminTheme", "TokenAuth"]

del _starlette_admin
