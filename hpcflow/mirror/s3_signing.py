"""Sign a part with its known SHA-256, so that botocore does not compute it again.

S3's signature covers the SHA-256 of the body (Signature Version 4, ``x-amz-content-sha256``).
botocore hashes the body for it, and has no argument for a known hash; but it allows another signer.

The body is a bytearray, which is reused. For a bytearray botocore does not send
``Expect: 100-continue``, as it does for bytes. hpcflow adds it: if a store refuses a part at once,
its answer must be read before 16 MiB are sent; over TLS it would be lost.
"""

from __future__ import annotations

from typing import Any, Final

from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth

#: An additional argument of ``upload_part``: the SHA-256 of ``Body``, 64 hexadecimal digits.
KNOWN_SHA256: Final = "HpcflowSha256"
#: botocore's names of Signature Version 4: in its rules for endpoints, and in a configuration.
_USUAL: Final = ("v4", "s3v4")
_OURS: Final = "s3v4-hpcflow"


def accept_known_sha256(client: Any) -> None:
    """Make ``client.upload_part`` take :data:`KNOWN_SHA256`."""
    AUTH_TYPE_MAPS[_OURS] = _KnowingAuth
    client.meta.events.register("provide-client-params.s3.UploadPart", _take)
    client.meta.events.register("choose-signer.s3.UploadPart", _choose)
    client.meta.events.register("before-call.s3.UploadPart", _ask_first)


class _KnowingAuth(S3SigV4Auth):  # type: ignore[misc]  # botocore has no types
    def payload(self, request: Any) -> Any:
        if self._should_sha256_sign_payload(request):  # a configuration may turn it off
            return request.context[KNOWN_SHA256]
        return super().payload(request)


def _take(params: dict[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any] | None:
    """Move the hash from the arguments, which S3 would not know, to the signer's context."""
    if KNOWN_SHA256 not in params:
        return None
    context[KNOWN_SHA256] = params[KNOWN_SHA256]
    return {name: value for name, value in params.items() if name != KNOWN_SHA256}


def _choose(signature_version: Any, context: dict[str, Any], **_: Any) -> str | None:
    """Choose hpcflow's signer, unless the bucket needs another signature, or none."""
    return _OURS if signature_version in _USUAL and KNOWN_SHA256 in context else None


def _ask_first(params: dict[str, Any], **_: Any) -> None:
    params["headers"]["Expect"] = "100-continue"
