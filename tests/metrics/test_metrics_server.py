"""The server: how it is started and closed, what it leaves behind, and what is said where it cannot be.

Runs in: the test process, forks of it, and a child program.
"""

from __future__ import annotations

import errno
import gzip
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import numpy as np
import prometheus_client
import pytest

import holdfast
from forked import holds_in_a_fork
from holdfast.metrics import server as server_module
from scraping import parse, scrape, text_of
from waits import PATIENCE_S, wait_until


def is_free(port: int) -> bool:
    """Whether nobody listens there."""
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) != 0


def test_it_serves_what_prometheus_reads() -> None:
    """Any path will do; `url` has the usual one."""
    with holdfast.metrics.start(0) as server:
        assert server.url == f"http://127.0.0.1:{server.port}/metrics"
        assert scrape(server)["holdfast_info", holdfast.__version__] == 1
        assert scrape(server)["holdfast_main_resident_bytes",] > 1_000_000
        assert repr(server) == f"<metrics at {server.url}>"


def test_a_scrape_may_be_compressed() -> None:
    """As Prometheus asks for it."""
    with holdfast.metrics.start(0) as server:
        request = urllib.request.Request(server.url, headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert parse(gzip.decompress(answer.read()).decode()).keys() == scrape(server).keys()


def test_after_close_the_port_is_free() -> None:
    """To close again does nothing, and the same port can be had again."""
    server = holdfast.metrics.start(0)
    port = server.port
    server.close()
    server.close()
    assert is_free(port)
    assert "closed" in repr(server)
    with holdfast.metrics.start(port) as again:
        assert again.port == port
        assert scrape(again)


def test_it_serves_though_nobody_holds_it() -> None:
    """`holdfast.metrics.start(9400)` is a whole line."""
    port = holdfast.metrics.start(0).port
    try:
        assert not is_free(port)
    finally:
        server_module._end_all()
    assert is_free(port)


def test_a_client_that_says_nothing_does_not_keep_it_from_closing() -> None:
    """Nor others from their scrape. (That no thread and no descriptor is left is checked after each test.)"""
    before = threading.active_count()
    server = holdfast.metrics.start(0)
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as silent:
        assert scrape(server)
        wait_until(lambda: server._http._open, PATIENCE_S, "the connection")
        server.close()
        assert silent.recv(1) == b""
    assert threading.active_count() == before


def test_a_client_that_goes_away_leaves_no_word_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with holdfast.metrics.start(0) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as rude:
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # a reset
            rude.sendall(b"GET /metrics HTTP/1.0\r\n")
        wait_until(lambda: not server._http._open, PATIENCE_S, "the end of its thread")
        assert scrape(server)
    assert capfd.readouterr() == ("", "")


def test_many_may_scrape_at_once() -> None:
    with holdfast.metrics.start(0) as server:
        said: list[str] = []
        threads = [threading.Thread(target=lambda: said.append(text_of(server))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert len(said) == 8
    assert len({frozenset(parse(text)) for text in said}) == 1


def test_the_users_own_registry_is_left_alone() -> None:
    """And can have our metrics too, if he likes."""
    with holdfast.metrics.start(0):
        assert not [family for family in prometheus_client.REGISTRY.collect() if "holdfast" in family.name]
    registry = prometheus_client.CollectorRegistry()
    registry.register(holdfast.metrics.collector())
    assert ("holdfast_batches_total",) in parse(prometheus_client.generate_latest(registry).decode())
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(holdfast.metrics.collector())


def test_another_version_of_the_address_works_too() -> None:
    """IPv6, and a name."""
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    with holdfast.metrics.start(0, "::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert scrape(server)
    with holdfast.metrics.start(0, "localhost") as server:
        assert scrape(server)


def test_a_port_may_be_of_any_kind_of_whole_number() -> None:
    """As one that was counted up with numpy."""
    with holdfast.metrics.start(np.int64(0)) as server:
        assert scrape(server)


def test_the_second_on_a_port_is_told_that_one_is_enough() -> None:
    with holdfast.metrics.start(0) as server, pytest.raises(OSError, match=f"on port {server.port} already") as caught:
        holdfast.metrics.start(server.port)
    assert caught.value.errno == errno.EADDRINUSE
    assert "one server is enough" in str(caught.value)


def test_a_port_that_another_program_has_is_named_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            OSError, match=rf"port {port} of 127\.0\.0\.1 is taken by another program.*port=0 takes any"
        ):
            holdfast.metrics.start(port)


@pytest.mark.parametrize(
    ("port", "addr", "kind", "said"),
    [
        ("9400", "127.0.0.1", TypeError, "port must be an int, not str"),
        (True, "127.0.0.1", TypeError, "port must be an int, not bool"),
        (None, "127.0.0.1", TypeError, "port must be an int, not NoneType"),
        (70000, "127.0.0.1", ValueError, "port must be between 0 and 65535, not 70000; port=0 takes any that is free"),
        (-1, "127.0.0.1", ValueError, "port must be between 0 and 65535, not -1"),
        (0, None, TypeError, "addr must be a str, not NoneType"),
        (0, "", ValueError, "addr must not be empty"),
        (0, "no such host", ValueError, "addr='no such host' is no address that is known here"),
        (0, "192.0.2.1", OSError, "addr='192.0.2.1' is not an address of this machine"),
    ],
)
def test_a_wrong_argument_is_named(port: int, addr: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=f"holdfast.metrics.start: {said}"):
        holdfast.metrics.start(port, addr)


def test_without_prometheus_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing `holdfast.metrics` needs nothing; starting does."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "prometheus_client"]:
        monkeypatch.setitem(sys.modules, name, None)
    for needs_it in (lambda: holdfast.metrics.start(0), holdfast.metrics.collector):
        with pytest.raises(ImportError, match=r"pip install 'torch-holdfast\[metrics\]'"):
            needs_it()


def test_a_forked_child_keeps_neither_the_port_nor_a_connection() -> None:
    """Else the port would be taken after this process is gone, and a client would wait for the child to end."""
    with holdfast.metrics.start(0) as server, socket.create_connection(("127.0.0.1", server.port)):
        wait_until(lambda: server._http._open, PATIENCE_S, "the connection")
        sockets = [server._http.socket, *server._http._open.values()]
        kept = {f"socket:[{os.fstat(each.fileno()).st_ino}]" for each in sockets}
        assert holds_in_a_fork(lambda: server.close() is None and kept.isdisjoint(_open_files()))
        assert scrape(server)


def _open_files() -> set[str]:
    """What the descriptors of this process are. (That of the listing itself is gone by then.)"""
    return {str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}


def test_a_forked_child_may_serve_on_its_own() -> None:
    """A rank, for instance."""

    def serves() -> bool:
        with holdfast.metrics.start(0) as own:
            return own.port != server.port and ("holdfast_batches_total",) in scrape(own)

    with holdfast.metrics.start(0) as server:
        assert holds_in_a_fork(serves)


PROGRAM = """
import holdfast
print(holdfast.metrics.start(0).port, flush=True)
input()
"""


def test_a_program_ends_though_a_client_hangs_on() -> None:
    """With its own exit code, at once, and without a word."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        port = int(program.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S):
            _, said = program.communicate(b"\n", timeout=PATIENCE_S)
    assert (program.returncode, said) == (0, b"")
    assert is_free(port)
