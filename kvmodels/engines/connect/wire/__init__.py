"""The messages of KV Connect as typed objects, and their bytes.

Rules of this package: it depends on nothing but the standard library, holds no connection and reads no clock. A decoder
takes bytes from anybody: it returns a message or raises ``WireError``, never another error, and uses memory in
proportion to the size of its input. It checks the form of a message; limits of keys and values, versions and states are
checked by the server and the client.
"""
