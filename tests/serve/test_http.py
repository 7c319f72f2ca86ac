"""The server on the network: TLS, HTTP/1.1, nonsense on a connection, and the command."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest
import trustme

from kvmodels import InvalidArgumentError, open_kv
from kvmodels.ext.serve import AccessToken, KvConnectServer, ServedStore, serve
from tests.serve.serving import TOKEN, deno, running

HERE = Path(__file__).parent


async def test_deno_reaches_the_server_over_tls(tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    with open_kv(codec="v8") as kv:
        app = KvConnectServer([ServedStore(kv, [AccessToken(TOKEN)])])
        async with running(app, tls_cert=str(tmp_path / "cert.pem"), tls_key=str(tmp_path / "key.pem")) as port:
            options = [f"--cert={tmp_path / 'ca.pem'}"]
            output = await deno(HERE / "fetch.ts", tmp_path, f"https://127.0.0.1:{port}/", options=options)
        assert output == 'Map(1) { 1n => "a" }\n'
        for files in ({"tls_cert": "cert.pem"}, {"tls_cert": tmp_path / "absent", "tls_key": tmp_path / "key.pem"}):
            with pytest.raises(InvalidArgumentError):
                await serve(app, port=0, **files)


async def test_nonsense_on_connections_harms_nobody_else():
    drawn = random.Random(22)
    beginnings = [
        b"",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\n\r\n",
    ]
    with open_kv(codec="v8") as kv:
        async with running(KvConnectServer([ServedStore(kv, [AccessToken(TOKEN)])])) as port:
            for at in range(60):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(beginnings[at % 4] + drawn.randbytes(200))
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
                writer.close()
            status, answer = await asyncio.to_thread(exchanged, port)
        assert (status, answer["version"]) == (200, 3)


def exchanged(port: int) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"supportedVersions": [1, 2, 3]})
    connection.request("POST", "/", body, {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"})
    response = connection.getresponse()
    found = response.status, json.loads(response.read())
    connection.close()
    return found


async def test_the_command_serves_a_file_and_ends_when_told(tmp_path):
    command = [sys.executable, "-W", "error", "-m", "kvmodels", "serve", "kv.db", "--create", "--addr", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "DENO_KV_ACCESS_TOKEN": TOKEN, "PYTHONPATH": str(HERE.parents[1])},
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    line = (await process.stderr.readline()).decode()
    assert line.startswith('Deno.openKv("http://127.0.0.1:')
    status, _ = await asyncio.to_thread(exchanged, int(line.rpartition(":")[2].rstrip('")\n')))
    assert status == 200
    process.send_signal(signal.SIGTERM)
    assert (await process.stderr.read()).decode() == ""
    assert await process.wait() == 0
