"""KV Connect, the protocol between Deno KV and its servers."""
