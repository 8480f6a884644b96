"""A proxy in front of an S3 server that makes what networks and servers do now and then."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit

_CHUNK_BYTES = 64 << 10
_XML = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"


class Proxy:
    """Hands bytes on, unless it is told to do worse.

    Attributes:
        failures: so many connections get ``status`` and ``code`` for an answer.
        fails_for: a pattern; to send what has it in its request line gets that answer, too.
        cuts: so many connections are cut when ``cut_after_bytes`` went to the server.
        answer_cuts: so many connections are cut before more than ``answer_cut_after_bytes`` went
            to the client.
        on_answer_cut: called when that is done.
        hides_ranges: no answer says which bytes of an object it has.
        bytes_s: the speed to the server; None for as fast as it goes.
        sent_bytes: what went to the server so far.
        headers: those of S3's own that requests had, and ``expect``, with their values.
    """

    def __init__(self, endpoint: str) -> None:
        split = urlsplit(endpoint)
        assert split.hostname and split.port
        self._server = (split.hostname, split.port)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._lock = threading.Lock()
        self.failures, self.status, self.code = 0, "503 Service Unavailable", "SlowDown"
        self.fails_for: bytes | None = None
        self.cuts, self.cut_after_bytes = 0, 0
        self.answer_cuts, self.answer_cut_after_bytes = 0, 0
        self.on_answer_cut: Callable[[], object] = lambda: None
        self.hides_ranges = False
        self.bytes_s: float | None = None
        self.sent_bytes = 0
        self.headers: set[str] = set()

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            if self._takes("failures"):
                self._answer(client, client.recv(_CHUNK_BYTES))
                return
            with socket.create_connection(self._server) as server:
                back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
                back.start()
                self._forward(client, server, is_cut=self._takes("cuts"))
                back.join()

    def _takes(self, what: str) -> bool:
        with self._lock:
            left = getattr(self, what)
            setattr(self, what, max(0, left - 1))
            return bool(left)

    def _answer(self, client: socket.socket, head: bytes) -> None:
        while b"\r\n\r\n" not in head:
            head += client.recv(_CHUNK_BYTES)
        body = _XML.format(code=self.code).encode()
        client.sendall(
            f"HTTP/1.1 {self.status}\r\nContent-Type: application/xml\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        client.shutdown(socket.SHUT_WR)
        while client.recv(_CHUNK_BYTES):  # so that the answer is not lost to a reset
            pass

    def _forward(self, client: socket.socket, server: socket.socket, *, is_cut: bool) -> None:
        left = self.cut_after_bytes
        while data := client.recv(_CHUNK_BYTES):
            if self.fails_for is not None and re.search(self.fails_for, _request_line(data)):
                self._answer(client, data)
                break
            if self.bytes_s is not None:
                time.sleep(len(data) / self.bytes_s)
            server.sendall(data)
            with self._lock:
                self.sent_bytes += len(data)
                self.headers |= {
                    line.decode("ascii", "replace").lower()
                    for line in data.split(b"\r\n")
                    if line.lower().startswith((b"x-amz-", b"expect:"))
                }
            left -= len(data)
            if is_cut and left <= 0:
                client.shutdown(socket.SHUT_RDWR)
                break
        server.shutdown(socket.SHUT_WR)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        sent_bytes = 0
        try:
            while data := source.recv(_CHUNK_BYTES):
                if self.hides_ranges:
                    data = re.sub(rb"(?i)\r\ncontent-range: [^\r]*", b"", data)
                sent_bytes += len(data)
                if sent_bytes > self.answer_cut_after_bytes > 0 and self._takes("answer_cuts"):
                    self.on_answer_cut()
                    target.shutdown(socket.SHUT_RDWR)
                    return
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # a server that was killed: who waits for its answer hears of it
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)


def _request_line(data: bytes) -> bytes:
    return data.split(b"\r\n", 1)[0] if data.startswith((b"PUT ", b"POST ")) else b""
