"""A folder of an S3 bucket.

botocore supports all kinds of credentials (variables, profile, SSO, role), has precise errors, and
can list the parts of an upload, so that it can be continued; s3fs and obstore do not. Objects that
are sent or read as a whole go through obstore, which is faster: :mod:`hpcflow.mirror.s3_fast`.
docs/benchmarks.md has the measurements.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar

from hpcflow.clock import Clock
from hpcflow.errors import (
    DamagedError,
    InputError,
    MirrorError,
    MirrorUnavailable,
    MissingObjectError,
)
from hpcflow.mirror.remote import (
    Entry,
    ListBudget,
    Options,
    Part,
    Parts,
    Remote,
    Sink,
    with_retries,
)
from hpcflow.mirror.s3_fast import FastObjects
from hpcflow.model.kinds import check_endpoint_url
from hpcflow.resources import install_extra

try:
    from botocore import exceptions
    from botocore.config import Config
    from botocore.loaders import create_loader
    from botocore.session import Session
    from urllib3.exceptions import HTTPError

    from hpcflow.mirror.s3_errors import NOT_S3, translated
    from hpcflow.mirror.s3_signing import KNOWN_SHA256, accept_known_sha256
except ImportError as missing:
    raise InputError(
        f"a mirror in S3 needs a package that is not installed: {missing.name}",
        next_action=install_extra("s3"),
    ) from None

_T = TypeVar("_T")
#: Key of the checksum in an object's metadata; rclone, s5cmd and people can read it.
_SHA256: Final = "sha256"
_CONNECTIONS: Final = 32
_CONNECT_TIMEOUT_S: Final = 10
#: Between two bytes, not for a whole request: a slow connection is no error.
_READ_TIMEOUT_S: Final = 60
_DELETED_AT_ONCE: Final = 1000
#: Pages of unfinished uploads that are removed at once. The next call removes more.
_PAGES_OF_UPLOADS: Final = 10
#: Read at once: the CPU's cache still has it when it is hashed and written.
_CHUNK_BYTES: Final = 128 << 10
_TOO_LARGE_BYTES: Final = 1 << 63
#: Up to this size obstore is faster.
_SMALL_BYTES: Final = 1 << 20


class S3Remote(Remote):
    """A folder of a bucket.

    Args:
        beside: another folder. If its endpoint is the same, its connections and credentials are
            shared: a client of botocore takes memory and a twentieth of a second.
    """

    _client: Any
    _credentials: Any

    def __init__(
        self,
        url: str,
        options: Options,
        *,
        clock: Clock,
        patience_s: float,
        beside: S3Remote | None = None,
    ) -> None:
        super().__init__(url)
        self.bucket, _, prefix = self.url.partition("://")[2].partition("/")
        self._prefix = prefix and f"{prefix}/"
        self._options, self._clock, self._patience_s = options, clock, patience_s
        self._endpoint = options.endpoint_url or "S3"
        self._client: Any
        self._credentials: Any
        if beside is not None and beside._options.endpoint_url == options.endpoint_url:
            self._client, self._credentials = beside._client, beside._credentials
        else:
            self._client, self._credentials = self._connect()
        self._endpoint = str(self._client.meta.endpoint_url)
        self._fast = FastObjects(self._client, self._credentials, self.bucket, options)
        self.parts = S3Parts(self)

    def names(self, prefix: str = "") -> dict[str, Entry]:
        def look() -> dict[str, Entry]:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.key(prefix)
            )
            found, budget = {}, ListBudget(self.url_of(prefix))
            for page in pages:
                budget.add_page()
                for each in page.get("Contents", []):
                    name = self.name_of(each["Key"], prefix)
                    if name.endswith("/"):  # some tools make such objects for folders
                        continue
                    budget.add(name)
                    found[name] = Entry(_size(each["Size"]), _plain(each.get("ETag")))
            return found

        return dict(sorted(self.call("list", prefix, look).items()))

    def folders(self, prefix: str = "") -> list[str]:
        def look() -> list[str]:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.key(prefix), Delimiter="/"
            )
            found, budget = [], ListBudget(self.url_of(prefix))
            for page in pages:
                budget.add_page()
                for each in page.get("CommonPrefixes", []):
                    name = self.name_of(each["Prefix"], prefix)[len(prefix) : -1]
                    budget.add(name)
                    found.append(name)
            return sorted(found)

        return self.call("list", prefix, look)

    def stat(self, name: str) -> Entry | None:
        def look() -> Entry:
            head = self._client.head_object(Bucket=self.bucket, Key=self.key(name))
            # Servers written in Go, such as rclone, change the case, as HTTP allows.
            metadata = {key.lower(): value for key, value in head.get("Metadata", {}).items()}
            sha256 = metadata.get(_SHA256)
            return Entry(_size(head["ContentLength"]), _plain(head.get("ETag")), sha256)

        try:
            return self.call("look at", name, look)
        except MissingObjectError:
            return None

    def read_range(self, name: str, begin: int, end: int) -> bytes:
        def read() -> bytes:
            if begin == 0:
                fast = self._fast.read_whole(self.key(name), end)
                if fast is not None:
                    return fast
            return b"".join(self._chunks(name, begin, end))

        return self.call("read", name, read) if end > begin else b""

    def stream(self, name: str, end: int, sink: Sink) -> None:
        if end - sink.at <= _SMALL_BYTES:
            super().stream(name, end, sink)
            return None

        etags: set[str] = set()

        def go_on() -> None:
            while sink.at < end:  # else the connection was cut after the last byte
                sink.require_wanted()
                before = sink.at
                try:
                    with self._translating(f"read {self.url_of(name)}"):
                        for chunk in self._chunks(name, sink.at, end, etags):
                            sink.take(chunk)
                        return
                except MirrorUnavailable:
                    if sink.at == before:  # else there was progress: go on
                        raise

        while True:
            before = sink.at
            try:
                return self.call("read", name, go_on)
            except MirrorUnavailable:
                if sink.at == before:
                    raise

    def _chunks(
        self, name: str, begin: int, end: int, etags: set[str] | None = None
    ) -> Iterator[bytes]:
        """Yield the bytes as they arrive.

        Args:
            etags: of earlier reads; the object must still be the same.
        """
        try:
            answer = self._client.get_object(
                Bucket=self.bucket, Key=self.key(name), Range=f"bytes={begin}-{end - 1}"
            )
        except exceptions.ClientError as error:
            if error.response.get("Error", {}).get("Code") == "InvalidRange":
                return  # an empty object, or the end of one
            raise
        with closing(answer["Body"]) as body:  # its own `with` does not translate errors
            # By Content-Range, because some servers send ranges with status 200.
            if begin and not str(answer.get("ContentRange")).startswith(f"bytes {begin}-"):
                raise MirrorError(
                    f"cannot read {self.url_of(name)}: {self._endpoint} sends whole objects only",
                    next_action="check for a proxy that does not support range requests",
                )
            if etags is not None:
                etags.add(str(answer.get("ETag")))
                if len(etags) > 1:
                    raise DamagedError(f"{self.url_of(name)} was replaced while it was read")
            left = end - begin
            while chunk := _read(body):
                yield chunk[:left]
                left -= len(chunk)
                if left < 0:  # the server ignores ranges, or its answer never ends
                    return

    def put_bytes(
        self, data: bytes | memoryview, name: str, *, sha256: str | None = None
    ) -> str | None:
        more = self.about_new(sha256)
        metadata = more.get("Metadata", {})
        if sha256 is not None:
            more["ChecksumSHA256"] = base64.b64encode(bytes.fromhex(sha256)).decode()

        def send() -> str | None:
            etag = self._fast.put(self.key(name), data, metadata)
            if etag is not None:
                return _plain(etag)
            answer = self._client.put_object(
                Bucket=self.bucket, Key=self.key(name), Body=data, **more
            )
            return _plain(answer.get("ETag"))

        return self.call("send", name, send)

    def delete(self, names: Iterable[str]) -> None:
        todo = [{"Key": self.key(name)} for name in names]
        for begin in range(0, len(todo), _DELETED_AT_ONCE):
            some = {"Objects": todo[begin : begin + _DELETED_AT_ONCE], "Quiet": True}

            def remove(some: dict[str, Any] = some) -> Any:
                return self._client.delete_objects(Bucket=self.bucket, Delete=some)

            answer = self.call("delete from", "", remove)
            if errors := answer.get("Errors"):
                raise MirrorError(
                    f"cannot delete {errors[0].get('Key')}: {errors[0].get('Code')}",
                    next_action="ask for s3:DeleteObject on the bucket",
                )

    # For S3Parts.

    @property
    def client(self) -> Any:
        return self._client

    def key(self, name: str) -> str:
        return self._prefix + name

    def name_of(self, key: str, prefix: str = "") -> str:
        """Invert :meth:`key`.

        Raises:
            ValueError: the name does not begin with ``prefix``, or is not in this folder.
        """
        if not key.startswith(self.key(prefix)):
            raise ValueError(f"{key[:200]!r} does not begin with {self.key(prefix)!r}")
        return key[len(self._prefix) :]

    def about_new(self, sha256: str | None) -> dict[str, Any]:
        """Return the arguments for a new object: encryption, storage class and checksum."""
        options = self._options
        said = {
            "ServerSideEncryption": options.encryption,
            "SSEKMSKeyId": options.kms_key,
            "StorageClass": options.storage_class,
            "Metadata": {_SHA256: sha256} if sha256 is not None else None,
        }
        return {key: value for key, value in said.items() if value is not None}

    def call(self, doing: str, name: str, do: Callable[[], _T]) -> _T:
        """Return ``do()``; retry temporary errors."""

        def once() -> _T:
            with self._translating(f"{doing} {self.url_of(name)}"):
                return do()

        return with_retries(once, clock=self._clock, patience_s=self._patience_s)

    @contextmanager
    def _translating(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (exceptions.ClientError, exceptions.BotoCoreError, OSError, *NOT_S3) as error:
            raise translated(error, doing, self.bucket, self._endpoint) from error

    def _connect(self) -> tuple[Any, Any]:
        """Return botocore's client and its credentials."""
        config = Config(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            max_pool_connections=_CONNECTIONS,
            retries={"mode": "standard", "total_max_attempts": 1},  # `with_retries` does it
            request_checksum_calculation="when_required",  # hpcflow sends SHA-256 itself
            response_checksum_validation="when_required",
            user_agent_extra="hpcflow",
        )
        with self._translating(f"use {self.url}"):
            session = Session()
            data_path = session.get_config_variable("data_path")
            session.register_component("data_loader", _descriptions(data_path))
            try:
                client = session.create_client(
                    "s3",
                    endpoint_url=self._options.endpoint_url,
                    # Other stores than Amazon's accept any region; botocore follows redirects.
                    region_name=session.get_config_variable("region") or "us-east-1",
                    config=config,
                )
                check_endpoint_url(str(client.meta.endpoint_url))
            except ValueError as error:
                if isinstance(error, exceptions.BotoCoreError):
                    raise
                # Without the error's text: it may quote a password, and messages are mirrored.
                raise InputError(
                    f"cannot use {self.url}: the URL of its server is not valid; expected one like "
                    "https://s3.example.org",
                    next_action="correct AWS_ENDPOINT_URL, or endpoint_url in ~/.aws/config; "
                    "credentials do not belong there",
                ) from None
            accept_known_sha256(client)
            return client, session.get_credentials()


@cache
def _descriptions(data_path: str | None) -> Any:
    """Return botocore's descriptions of S3: parsing them takes most of the time of a client."""
    return create_loader(data_path)


def _read(body: Any) -> bytes:
    try:
        return bytes(body.read(_CHUNK_BYTES))
    except HTTPError as error:  # botocore does not translate those of TLS
        raise exceptions.ResponseStreamingError(error=error) from error


class S3Parts(Parts):
    """Multipart uploads of a bucket."""

    def __init__(self, remote: S3Remote) -> None:
        self._remote = remote

    def begin(self, name: str, sha256: str | None = None) -> str:
        more = self._remote.about_new(sha256)

        def create() -> str:
            answer = self._remote.client.create_multipart_upload(**self._object(name), **more)
            return str(answer["UploadId"])

        return self._remote.call("send", name, create)

    def put(
        self,
        name: str,
        upload_id: str,
        number: int,
        data: bytes | bytearray,
        *,
        sha256: str | None = None,
    ) -> Part:
        known = {KNOWN_SHA256: sha256} if sha256 is not None else {}

        def send() -> Part:
            answer = self._remote.client.upload_part(
                **self._object(name), UploadId=upload_id, PartNumber=number, Body=data, **known
            )
            return Part(number, len(data), str(answer["ETag"]))

        return self._remote.call("send", name, send)

    def done(self, name: str, upload_id: str) -> dict[int, Part] | None:
        def look() -> dict[int, Part]:
            pages = self._remote.client.get_paginator("list_parts").paginate(
                **self._object(name), UploadId=upload_id
            )
            return {
                each["PartNumber"]: Part(each["PartNumber"], each["Size"], each["ETag"])
                for page in pages
                for each in page.get("Parts", [])
            }

        try:
            return self._remote.call("look at", name, look)
        except MissingObjectError:
            return None

    def finish(self, name: str, upload_id: str, parts: Iterable[Part]) -> None:
        said = [
            {"PartNumber": each.number, "ETag": each.etag}
            for each in sorted(parts, key=lambda each: each.number)
        ]

        def complete() -> None:
            self._remote.client.complete_multipart_upload(
                **self._object(name), UploadId=upload_id, MultipartUpload={"Parts": said}
            )

        self._remote.call("send", name, complete)

    def abort(self, name: str, upload_id: str) -> None:
        def stop() -> None:
            self._remote.client.abort_multipart_upload(**self._object(name), UploadId=upload_id)

        with suppress(MissingObjectError):
            self._remote.call("clean up", name, stop)

    def unfinished(self, prefix: str) -> list[tuple[str, str]]:
        def look() -> list[tuple[str, str]]:
            pages = self._remote.client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._remote.bucket, Prefix=self._remote.key(prefix)
            )
            found = (
                (self._remote.name_of(each["Key"], prefix), each["UploadId"])
                for page in islice(pages, _PAGES_OF_UPLOADS)
                for each in page.get("Uploads", [])
            )
            return list(islice(found, _DELETED_AT_ONCE))

        with suppress(MirrorError):  # some stores cannot list them: left to the bucket's rules
            return self._remote.call("look at", prefix, look)
        return []

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self._remote.bucket, "Key": self._remote.key(name)}


def _size(said: int) -> int:
    if not 0 <= said < _TOO_LARGE_BYTES:
        raise ValueError(f"{said} is not a size")
    return said


def _plain(etag: str | None) -> str | None:
    return etag.strip('"') if etag else None
