"""A server that speaks S3 badly, or not at all: an error that says so, and bounded memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest

from hpcflow.errors import MirrorError
from hpcflow.mirror import remote as limits
from hpcflow.mirror.remote import Options, Remote
from hpcflow.mirror.stores import open_remote
from tests.hostile import bounded

NAME: Final = "run-1/model.pt"
_LIST: Final = "<?xml version='1.0'?><ListBucketResult>{}</ListBucketResult>"
_OBJECT: Final = "<Contents><Key>{key}</Key><Size>{size}</Size>{more}</Contents>"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Callable[[_Handler], None]

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        type(self).answer(self)

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815 - their names are http.server's

    def log_message(self, *_: object) -> None:
        return

    def send(self, body: str, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        headers = {"Content_Length": str(len(body.encode())), "Connection": "close", **headers}
        for name, value in headers.items():
            if value:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())
        self.close_connection = True

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query)


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        yield open_remote("s3://bucket/p", Options(endpoint_url=url), patience_s=0)
        server.shutdown()


def listing(key: str = f"p/{NAME}", size: str = "1", more: str = "") -> str:
    return _LIST.format(_OBJECT.format(key=key, size=size, more=more))


@pytest.mark.parametrize(
    "body",
    [
        listing(size="many"),
        listing(size="-5"),
        listing(size="9" * 30),
        listing(size="9" * 6000),
        listing(more="<LastModified>yesterday</LastModified>"),
        listing(key="p/run-2/model.pt"),
        listing(key="other"),
        _LIST.format("<Contents><Size>1</Size></Contents>"),
        _LIST.format(f"<Contents><Key>p/{NAME}</Key></Contents>"),
    ],
    ids=lambda body: body[40:110],
)
def test_a_listing_that_is_none_is_said(remote: Remote, body: str) -> None:
    _Handler.answer = lambda self: self.send(body)
    with pytest.raises(MirrorError, match=r"the answer of .* is not S3") as caught:
        remote.names("run-1/")
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize(
    "headers",
    [{"Content_Length": "many"}, {"Content_Length": "-5"}, {"Content_Length": ""},
     {"Last_Modified": "nonsense"}],
    ids=str,
)  # fmt: skip
def test_an_object_that_is_none_is_said(remote: Remote, headers: dict[str, str]) -> None:
    _Handler.answer = lambda self: self.send("", 200, **headers)
    with pytest.raises(MirrorError, match=r"the answer of .* is not S3"):
        remote.stat(NAME)


def test_a_redirect_is_said(remote: Remote) -> None:
    _Handler.answer = lambda self: self.send("", 307, Location="http://127.0.0.1:9/")
    calls: list[Callable[[], object]] = [
        remote.names, remote.folders, lambda: remote.stat(NAME), lambda: remote.put_bytes(b"", NAME)
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(MirrorError):
            call()


def test_an_upload_without_an_id_is_said(remote: Remote) -> None:
    _Handler.answer = lambda self: self.send("<x/>")
    assert remote.parts is not None
    with pytest.raises(MirrorError, match="UploadId"):
        remote.parts.begin(NAME)
    with pytest.raises(MirrorError, match="ETag"):
        remote.parts.put(NAME, "x", 1, b"x")


def test_a_long_error_is_cut(remote: Remote) -> None:
    error = f"<Error><Code>Evil</Code><Message>{'A' * 100_000}</Message></Error>"
    _Handler.answer = lambda self: self.send(error, 400)
    with pytest.raises(MirrorError, match="Evil: AAA") as caught:
        remote.names()
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize("says_length", [False, True])
def test_an_answer_without_end_is_not_read_to_its_end(remote: Remote, says_length: bool) -> None:
    def answer(self: _Handler) -> None:
        self.send_response(200)
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        if says_length:
            self.send_header("Content-Length", "10")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for _ in range(4096):
                self.wfile.write(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
        except OSError:
            return

    _Handler.answer = answer
    with bounded():
        assert remote.read_range(NAME, 0, 1000) == bytes(1000)
        with pytest.raises(MirrorError, match="too large"):
            remote.read(NAME, 1000)


@pytest.mark.parametrize("names", [0, 100])
@pytest.mark.parametrize("look", ["names", "folders"])
def test_a_listing_without_end_ends(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, look: str, names: int
) -> None:
    monkeypatch.setattr(limits, "_LISTED_BYTES", 1 << 20)

    def answer(self: _Handler) -> None:
        page = int(self.query.get("continuation-token", ["0"])[0])
        keys = [f"p/{page}-{number}-{'x' * 900}" for number in range(names)]
        objects = [_OBJECT.format(key=key, size=1, more="") for key in keys]
        objects += [f"<CommonPrefixes><Prefix>{key}/</Prefix></CommonPrefixes>" for key in keys]
        more = "<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>"
        self.send(_LIST.format(more.format(page + 1) + "".join(objects)))

    _Handler.answer = answer
    with bounded(), pytest.raises(MirrorError, match="too many objects"):
        getattr(remote, look)()


@pytest.mark.parametrize("uploads", [0, 300])
def test_uploads_without_end_end(remote: Remote, uploads: int) -> None:
    """Everybody who can write to a bucket can begin some below the name of a checkpoint."""
    one = "<Upload><Key>p/run-1/{0}</Key><UploadId>{0}</UploadId></Upload>"
    more = "<IsTruncated>true</IsTruncated><NextKeyMarker>{0}</NextKeyMarker>"

    def answer(self: _Handler) -> None:
        page = int(self.query.get("key-marker", ["0"])[0]) + 1
        found = "".join(one.format(f"{page}-{number}") for number in range(uploads))
        body = f"{more.format(page)}{found}"
        self.send(f"<ListMultipartUploadsResult>{body}</ListMultipartUploadsResult>")

    _Handler.answer = answer
    assert remote.parts is not None
    with bounded():
        assert len(remote.parts.unfinished("run-1/")) == (1000 if uploads else 0)


def test_a_folder_with_names_without_end_ends(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path_factory.mktemp("store")
    for number in range(100):
        (store / str(number)).mkdir()
    monkeypatch.setattr(limits, "_LISTED_BYTES", 10_000)
    remote = open_remote(str(store))
    for look in (remote.names, remote.folders):
        with pytest.raises(MirrorError, match="too many objects"):
            look()
