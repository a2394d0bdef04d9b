"""`holdfast.metrics.start`: an HTTP server with one thread, and one more for each scrape that is under way.

- It serves until it is closed, or the process ends, whether anybody holds what `start` returned or not.
- After `close()` there is no thread and no descriptor left, whatever clients do.
- A forked child, such as a worker, has no part in it: the listening socket is closed there, so that the port is free
  when this process is gone, and connections end when we end them.

Runs in: main process, in threads of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import operator
import os
import socket
import sys
import threading
from collections.abc import Callable
from http.server import HTTPServer
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import Any, Self

from holdfast.metrics import addresses
from holdfast.metrics.collector import Collector, require

_log = logging.getLogger(__name__)
_LOOK_S = 0.2  # how soon the thread notices that it is to end
_SILENT_S = 10.0  # for a client that has connected, and asks for nothing or does not read


def start(port: int, addr: str = "127.0.0.1") -> MetricsServer:
    """Serve the metrics of all loaders, pools and ranks of this process, at http://ADDR:PORT/metrics.

    `port`: 0 is any that is free; the server's `port` says which. `addr`: "0.0.0.0" is every network of this machine;
    there is no password. Returns the server: `port`, `url`, `close()`, also as a context manager. It need not be kept.
    """
    addresses.check(port, addr)
    require()
    server = MetricsServer(operator.index(port), addr)  # (sockets take nothing that is only like an int)
    _end_with_process(server)
    return server


class MetricsServer:
    """Serves from when it is made until `close()`."""

    def __init__(self, port: int, addr: str) -> None:
        self._http = _listen(port, addr)
        self.addr = addr
        self.port: int = self._http.server_address[1]
        """The one that was asked for, or found."""
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(_LOOK_S,), name="holdfast-metrics", daemon=True
        )
        try:
            self._thread.start()
        except BaseException:
            self._http.server_close()
            raise

    @property
    def url(self) -> str:
        """What Prometheus is to scrape."""
        return f"http://{addresses.in_url(self.addr)}:{self.port}/metrics"

    def close(self) -> None:
        """Stop serving, and free the port. Takes a moment; harmless when called again."""
        try:
            _serving.remove(self)
        except ValueError:
            return  # closed, or a forked child's copy
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def forget(self) -> None:
        """In a forked child: let go of what is the parent's."""
        self._http.let_go()

    def __repr__(self) -> str:
        return f"<metrics at {self.url}{'' if self in _serving else ', closed'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Http(ThreadingMixIn, HTTPServer):
    """Threads are daemons: nobody who hangs on a connection keeps the process from ending."""

    allow_reuse_address = sys.platform != "win32"  # there it would let two programs have one port
    allow_reuse_port = False

    def __init__(self, where: tuple[Any, ...], family: int, handler: Callable[..., Any]) -> None:
        self.address_family = socket.AddressFamily(family)
        self._open: dict[threading.Thread, socket.socket] = {}
        super().__init__(where, handler)

    def server_bind(self) -> None:
        """Not HTTPServer's, which asks DNS for the machine's name, for seconds where there is none, and for nothing."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread that `server_close` knows of before it runs."""
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        self._open[thread] = request
        try:
            thread.start()
        except BaseException:
            del self._open[thread]
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._open[threading.current_thread()]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone, mostly. Nothing of it belongs on the terminal of a training."""
        is_clients = isinstance(sys.exception(), OSError)
        _log.log(logging.DEBUG if is_clients else logging.WARNING, "scrape failed", exc_info=True)

    def server_close(self) -> None:
        super().server_close()
        for thread, connection in list(self._open.items()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # whatever its client does: its thread reads the end
            thread.join()

    def let_go(self) -> None:
        """Close the descriptors alone: the sockets are the parent's, and their files think that they are in use."""
        for each in (self.socket, *self._open.values()):
            fd = each.detach()
            if fd >= 0:
                os.close(fd)


def _listen(port: int, addr: str) -> _Http:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import MetricsHandler

    registry = CollectorRegistry()  # not the default one: that is the user's
    registry.register(Collector())
    handler = MetricsHandler.factory(registry)
    handler.timeout = _SILENT_S  # type: ignore[attr-defined]
    family, where = addresses.resolve(port, addr)
    try:
        return _Http(where, family, handler)
    except OSError as error:
        raise addresses.refusal(error, port, addr, is_ours=any(each.port == port for each in _serving)) from error


# -- the end of the process, and forks of it ---------------------------------------------------------------------------

_serving: list[MetricsServer] = []
_hooked: list[bool] = []


def _end_with_process(server: MetricsServer) -> None:
    _serving.append(server)
    if not _hooked:
        _hooked.append(True)
        atexit.register(_end_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forget_all)


def _end_all() -> None:
    for server in list(_serving):
        server.close()


def _forget_all() -> None:
    for server in _serving:
        server.forget()
    _serving.clear()
