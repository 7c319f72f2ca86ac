"""The look of the pages: the colours and the logo of the documentation, light and dark, without anything from a CDN.

Rules of this module: its templates replace those of starlette-admin that load something from elsewhere, or have scripts
inside of HTML.
"""

from __future__ import annotations

from typing import ClassVar

from starlette.requests import Request
from starlette_admin.theme import BaseTheme, CoreIcons, IconSet


class AdminTheme(BaseTheme):
    """The theme of ``Admin``. It has no scripts besides its own, so it does not suit model views of starlette-admin."""

    name: ClassVar[str] = "kvmodels"
    package: ClassVar[str | None] = "kvmodels.ext.admin.skin"

    def get_icon_set(self) -> IconSet:
        """Return the icons, which starlette-admin serves."""
        return CoreIcons()

    def html_attrs(self, request: Request) -> dict[str, str]:  # noqa: ARG002 - the signature of starlette-admin
        """Return the attributes of the page; a script sets the dark ones before anything is painted."""
        return {"data-bs-theme": "light", "class": "kvmodels"}
