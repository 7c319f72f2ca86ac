"""URLs, variables of etcdctl and options of a store in etcd; what makes no sense is refused before anything is sent."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kvmodels import open_kv
from kvmodels.cli.failures import FOUND, STORE, USAGE, exit_code_of
from kvmodels.cli.output import redacted
from kvmodels.cli.wording import in_commands
from kvmodels.core.operations import AtomicWrite, Delete
from kvmodels.engines.etcd.errors import absent, lossy_server, restored, wrong_credentials
from kvmodels.engines.etcd.settings import TlsPaths, credentials_of, limits_of, location_of, tls_of
from kvmodels.engines.shared.server_errors import GONE
from kvmodels.errors import (
    EngineTimeoutError,
    InvalidArgumentError,
    KvModelsError,
    OperationTooLargeError,
    ValueTooLargeError,
)
from kvmodels.indexing.budget import check_budget
from kvmodels.limits import Limits

SECRET = "s3cr:t@/x"
NOWHERE = "etcd://127.0.0.1:1/app"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINTS", "CACERT", "CERT", "KEY", "USER", "PASSWORD"):
        monkeypatch.delenv(f"ETCDCTL_{name}", raising=False)


@pytest.mark.parametrize(
    ("url", "endpoints", "prefix", "encrypted"),
    [
        ("etcd://h", ("h:2379",), "/kvmodels", False),
        ("etcd://h/", ("h:2379",), "/kvmodels", False),
        ("etcds://h1:2379,h2:2380/app", ("h1:2379", "h2:2380"), "/app", True),
        ("etcd://[::1]:2379/a/b.c/", ("[::1]:2379",), "/a/b.c", False),
    ],
)
def test_a_url_names_endpoints_and_a_prefix(url, endpoints, prefix, encrypted):
    assert location_of(url) == (endpoints, prefix, encrypted)


@pytest.mark.parametrize(
    "url",
    [
        "etcd://h:0/app",
        "etcd://h:70000/app",
        "etcd://h1,,h2/app",
        "etcd://h/a//b",
        "etcd://h/a b",
        "etcd://h/a?x=1",
        f"etcd://user:{SECRET}@h/app",
        f"etcd://h/app?password={SECRET}",
    ],
)
def test_a_url_that_makes_no_sense_is_refused_without_its_secrets(url):
    with pytest.raises(InvalidArgumentError) as caught:
        open_kv(url)
    assert caught.value.argument == "url"
    assert SECRET not in str(caught.value)


def test_without_hosts_the_variable_of_etcdctl_names_them(monkeypatch):
    monkeypatch.setenv("ETCDCTL_ENDPOINTS", "h1:2379, https://h2:2380/")
    assert location_of("etcd:///app") == (("h1:2379", "h2:2380"), "/app", True)
    monkeypatch.setenv("ETCDCTL_ENDPOINTS", "")
    with pytest.raises(InvalidArgumentError, match="ETCDCTL_ENDPOINTS"):
        location_of("etcd:///app")


def test_options_come_before_the_variables_of_etcdctl(monkeypatch):
    assert credentials_of(None, None) is None
    monkeypatch.setenv("ETCDCTL_USER", f"root:{SECRET}")
    assert credentials_of(None, None) == ("root", SECRET)
    assert credentials_of("ada", "other") == ("ada", "other")
    monkeypatch.setenv("ETCDCTL_USER", "root")
    with pytest.raises(InvalidArgumentError) as caught:
        credentials_of(None, None)
    assert caught.value.argument == "password"
    monkeypatch.setenv("ETCDCTL_PASSWORD", SECRET)
    assert credentials_of(None, None) == ("root", SECRET)
    assert SECRET not in repr(credentials_of(None, None))


def test_files_for_tls_are_read_or_refused(tmp_path: Path, monkeypatch):
    file = tmp_path / "ca.pem"
    file.write_text("certificate")
    found = tls_of(TlsPaths(file, None, None), encrypted=True)
    assert found == (b"certificate", None, None)
    assert "certificate" not in repr(found)
    monkeypatch.setenv("ETCDCTL_CACERT", str(file))
    assert tls_of(TlsPaths(None, None, None), encrypted=True) == (b"certificate", None, None)
    assert tls_of(TlsPaths(None, None, None), encrypted=False) is None
    for paths, encrypted, argument in (
        (TlsPaths(tmp_path / "absent", None, None), True, "cacert"),
        (TlsPaths(None, file, None), True, "key"),
        (TlsPaths(None, None, file), True, "cert"),
        (TlsPaths(file, None, None), False, "cacert"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            tls_of(paths, encrypted=encrypted)
        assert caught.value.argument == argument


@pytest.mark.parametrize(
    "options",
    [
        {"max_txn_ops": 15},
        {"max_txn_ops": True},
        {"busy_timeout": 0},
        {"snapshot_max_age": "day"},
        {"allow_lossy_server": 1},
        {"accept_restore": None},
        {"create": 1},
        {"user": 5},
        {"password": b"x"},
        {"change_log": 60},
        {"pool_size": 5},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(InvalidArgumentError) as caught:
        open_kv(NOWHERE, **options)
    assert caught.value.argument in options


def test_limits_follow_the_operations_of_a_transaction():
    assert limits_of(128) == Limits.ETCD
    assert (limits_of(10_000).max_checks, limits_of(10_000).max_mutations) == (4_999, 4_996)


def test_a_cluster_that_is_not_there_is_a_timeout_that_says_why():
    with pytest.raises(EngineTimeoutError) as caught:
        open_kv(NOWHERE, busy_timeout=5, user="root", password=SECRET)
    assert "refused" in str(caught.value.reason)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://127.0.0.1:2379", {}),
        ("https://h1:2379,h2:2379/app", {"access_token": "the token of this test"}),
        ("http://127.0.0.1:2379/app", {"access_token": "the token of this test", "pool_size": 0}),
    ],
)
def test_the_endpoint_of_an_etcd_server_in_place_of_its_url_is_answered_with_the_scheme(url, options, monkeypatch):
    monkeypatch.delenv("DENO_KV_ACCESS_TOKEN", raising=False)
    with pytest.raises(InvalidArgumentError) as caught:
        open_kv(url, **options)
    assert str(caught.value.hint).endswith(" For an etcd cluster, begin the URL with etcd://, or etcds:// for TLS.")
    with pytest.raises(InvalidArgumentError) as caught:
        open_kv(url.replace("2379", "4512"), **options)
    assert "etcd" not in str(caught.value.hint)


def test_without_the_packages_the_extra_is_named():
    code = (
        "import sys\nsys.modules['grpc'] = None\nfrom kvmodels import open_kv, UnsupportedError\n"
        f"try:\n    open_kv({NOWHERE!r})\nexcept UnsupportedError as error:\n    print(error.hint)"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "kvmodels[etcd]" in shown


def test_errors_of_this_engine_are_those_of_the_library():
    with pytest.raises(KvModelsError):
        open_kv("etcd:/missing/slash")


def test_the_hint_about_a_change_log_says_that_watches_need_none():
    with pytest.raises(InvalidArgumentError, match="watched without it"):
        open_kv(NOWHERE, change_log=60)


@pytest.mark.parametrize("limits", [limits_of(128), limits_of(1_024)])
def test_an_operation_that_is_too_large_names_the_options_that_help(limits):
    write = AtomicWrite((), tuple(Delete(b"%d" % n) for n in range(limits.max_mutations + 1)))
    with pytest.raises(OperationTooLargeError) as caught:
        check_budget(write, limits)
    assert "batch_size=" in str(caught.value.hint)
    assert "max_txn_ops=" in str(caught.value.hint)
    with pytest.raises(OperationTooLargeError) as caught:
        check_budget(write, replace(limits, name="OWN"))
    assert "max_txn_ops=" not in str(caught.value.hint)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            lossy_server(NOWHERE, "3.5.1"),
            "allow_lossy_server=True in a program, and name its database as module:object.",
        ),
        (restored(NOWHERE, 1, 2), "accept_restore=True in a program, and name its database as module:object."),
        (absent(NOWHERE), "the last part of the URL; load, restore and copy create a store."),
        (wrong_credentials(NOWHERE, "refused"), "Set ETCDCTL_USER and ETCDCTL_PASSWORD."),
    ],
)
def test_hints_on_the_command_line_can_be_followed_there(error, said):
    assert in_commands(str(error)).endswith(said)
    assert redacted(str(error)) == str(error)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (absent(NOWHERE), USAGE),
        (GONE.of(NOWHERE, "removed"), STORE),
        (ValueTooLargeError("a value is too large"), FOUND),
    ],
)
def test_an_absent_store_and_a_refused_value_have_exit_codes_of_their_own(error, code):
    assert exit_code_of(error) == code
