"""Only base64url is decoded; Python's own decoder also takes, or skips, characters of other alphabets."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from kvmodels._support.base64url import base64url_bytes


@pytest.mark.parametrize("size", range(8))
def test_what_is_encoded_comes_back(size):
    data = bytes([251, 255, 191, 0, 62, 63, 254, 1])[:size]
    assert base64url_bytes(urlsafe_b64encode(data).decode()) == data


@pytest.mark.parametrize("text", ["+/+/", "ab+/", "ab=", "a b=", "ab\n=", "é===", "AA==AA==", "\0AAA"])
def test_any_other_text_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        base64url_bytes(text)
