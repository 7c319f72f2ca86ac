"""The codec of a store, for tests that read or write beside its facade: the default one, or V8 over KV Connect."""

from __future__ import annotations

from kvmodels.api._async.kv import AsyncKv
from kvmodels.api._sync.kv import Kv
from kvmodels.api.opening import Opening, store_format
from kvmodels.codecs.base import MSGPACK_ENCODING
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.engines.contract import Engine
from kvmodels.flows.kv.store_format import StoreFormat


def form_of(engine: Engine) -> StoreFormat:
    """Return the format in which tests open a store: with msgpack if its engine takes that, else with V8."""
    taken = engine.capabilities.traits.value_encodings
    return store_format("msgpack" if taken is None or MSGPACK_ENCODING in taken else "v8")


def codec_of(engine: Engine) -> ValueCodec:
    """Return the codec of ``form_of``."""
    return form_of(engine).codec


def kv_on(engine: Engine) -> Kv:
    """Return the key-value API on an open engine."""
    return Kv(Opening.done(engine), form_of(engine))


def async_kv_on(engine: Engine) -> AsyncKv:
    """Return the asynchronous key-value API on an open engine."""
    return AsyncKv(Opening.done(engine), form_of(engine))
