"""Sign a part with its known SHA-256, so that botocore does not compute it again.

S3's signature covers the SHA-256 of what is sent (Signature Version 4, ``x-amz-content-sha256``).
botocore hashes the body for it, and has no argument to be told; but it lets us choose who signs.

What is sent is a bytearray, which is used again. Of that botocore does not ask whether the store
wants it (``Expect: 100-continue``), as it does for bytes; but a store that refuses at once must be
heard before 16 MiB are on their way to it: over TLS its answer would be lost.
"""

from __future__ import annotations

from typing import Any, Final

from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth

#: An argument more for ``upload_part``: the SHA-256 of ``Body``, 64 hexadecimal digits.
KNOWN_SHA256: Final = "HpcflowSha256"
#: What botocore calls Signature Version 4: by its rules for endpoints, and in a configuration.
_USUAL: Final = ("v4", "s3v4")
_OURS: Final = "s3v4-hpcflow"


def let_sha256_be_told(client: Any) -> None:
    """Make ``client.upload_part`` take :data:`KNOWN_SHA256`."""
    AUTH_TYPE_MAPS[_OURS] = _KnowingAuth
    client.meta.events.register("provide-client-params.s3.UploadPart", _take)
    client.meta.events.register("choose-signer.s3.UploadPart", _choose)
    client.meta.events.register("before-call.s3.UploadPart", _ask_first)


class _KnowingAuth(S3SigV4Auth):  # type: ignore[misc]  # botocore has no types
    def payload(self, request: Any) -> Any:
        if self._should_sha256_sign_payload(request):  # it can be configured otherwise
            return request.context[KNOWN_SHA256]
        return super().payload(request)


def _take(params: dict[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any] | None:
    """Out of the arguments, for the service knows none of that name, to where signers look."""
    if KNOWN_SHA256 not in params:
        return None
    context[KNOWN_SHA256] = params[KNOWN_SHA256]
    return {name: value for name, value in params.items() if name != KNOWN_SHA256}


def _choose(signature_version: Any, context: dict[str, Any], **_: Any) -> str | None:
    """Ours, unless the bucket wants another kind of signature, or none."""
    return _OURS if signature_version in _USUAL and KNOWN_SHA256 in context else None


def _ask_first(params: dict[str, Any], **_: Any) -> None:
    params["headers"]["Expect"] = "100-continue"
