"""Send whole objects with obstore, which needs a tenth of botocore's time for each.

Only its synchronous functions are used, from hpcflow's threads. Its asynchronous ones sometimes end
a process with SIGABRT at exit: docs/mirror.md, section "Implementation".

If obstore fails, botocore does the same request and reports the error.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, Final

from hpcflow.mirror.remote import Options

#: After this many failures in a row obstore is not used any more: it may lack a certificate or
#: proxy that botocore has; or the store is down, and botocore waits for it.
_MOST_FAILURES: Final = 20
#: How long keys are used before they are read again from botocore, which renews them.
_KEYS_FOR: Final = timedelta(minutes=5)
_TIMEOUT: Final = "300 seconds"
_CONNECT_TIMEOUT: Final = "10 seconds"


class FastObjects:
    """The objects of a bucket; None as a result means: use botocore."""

    def __init__(self, client: Any, credentials: Any, bucket: str, options: Options) -> None:
        self._failures = 0
        self._kept = {"Storage-Class": options.storage_class} if options.storage_class else {}
        self._store: Any = None
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError:
            return
        if credentials is None:
            return
        endpoint = str(client.meta.endpoint_url)
        self._obstore = obstore
        self._store = S3Store(
            bucket,
            endpoint=endpoint,
            region=client.meta.region_name,
            virtual_hosted_style_request=False,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "timeout": _TIMEOUT,
                "connect_timeout": _CONNECT_TIMEOUT,
            },
            retry_config={"max_retries": 0},
            credential_provider=lambda: _keys(credentials),
            **_encryption(options),
        )

    def put(self, key: str, data: bytes | memoryview, metadata: dict[str, str]) -> str | None:
        """Send an object; return its ETag, or None if that failed."""
        if not self._is_usable:
            return None
        try:
            said = self._obstore.put(
                self._store,
                key,
                data,
                attributes={**metadata, **self._kept},
                use_multipart=False,
            )
        except Exception:  # botocore repeats the request and reports the error
            self._failures += 1
            return None
        self._failures = 0
        return str(said["e_tag"] or "")

    def read_whole(self, key: str, most_bytes: int) -> bytes | None:
        """Return an object of up to ``most_bytes``; None if it is larger, or if that failed.

        Not for ranges: obstore refuses servers that answer them with 200 instead of 206.
        """
        if not self._is_usable:
            return None
        try:
            found = self._obstore.get(self._store, key)
            if found.meta["size"] > most_bytes:
                return None
            data = b""
            for chunk in found:  # of ten megabytes; the answer may be longer than its size
                data += bytes(chunk)
                if len(data) > most_bytes:
                    return None
        except Exception:  # as above
            self._failures += 1
            return None
        self._failures = 0
        return data

    @property
    def _is_usable(self) -> bool:
        return self._store is not None and self._failures < _MOST_FAILURES


def _encryption(options: Options) -> dict[str, str]:
    said = {"server_side_encryption": options.encryption, "sse_kms_key_id": options.kms_key}
    return {name: value for name, value in said.items() if value is not None}


def _keys(credentials: Any) -> dict[str, Any]:
    """Return credentials for obstore, which botocore renews when they expire."""
    frozen = credentials.get_frozen_credentials()
    is_renewed = hasattr(credentials, "refresh_needed")
    return {
        "access_key_id": frozen.access_key,
        "secret_access_key": frozen.secret_key,
        "token": frozen.token,
        "expires_at": datetime.now(timezone.utc) + _KEYS_FOR if is_renewed else None,
    }
