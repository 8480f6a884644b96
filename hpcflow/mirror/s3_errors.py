"""Convert errors of botocore to hpcflow's: what is wrong, and what to do next."""

from __future__ import annotations

from typing import Any, Final

from botocore import exceptions

from hpcflow.errors import HpcflowError, InputError, MirrorError, MirrorUnavailable, shell_word
from hpcflow.errors import MissingObjectError as Missing

_WHO_AM_I: Final = (
    "see which credentials are used: aws sts get-caller-identity; they come from AWS_* variables, "
    "AWS_PROFILE, ~/.aws, or the machine's role"
)
#: S3's error code -> (what is wrong, what to do next), with ``{bucket}`` and ``{endpoint}``.
_REFUSED: Final = {
    "InvalidAccessKeyId": ("the store does not know the access key", _WHO_AM_I),
    "SignatureDoesNotMatch": ("the secret key does not match the access key", _WHO_AM_I),
    "ExpiredToken": ("the credentials have expired", "renew them, for instance: aws sso login"),
    "InvalidToken": ("the session token is not valid", _WHO_AM_I),
    "AccessDenied": (
        "these credentials lack the permission in the bucket {bucket}",
        f"ask for s3:ListBucket, GetObject, PutObject and DeleteObject on it; or {_WHO_AM_I}",
    ),
    "NoSuchBucket": (
        "there is no bucket {bucket} at {endpoint}",
        "create it (aws s3 mb s3://{bucket}), or correct mirror.url in the site file or the config",
    ),
    "RequestTimeTooSkewed": (
        "the clocks of this machine and the store differ too much, so it refuses every request",
        "compare `date -u` with the store's, and have the clock corrected (chronyc tracking)",
    ),
    "PermanentRedirect": (
        "the bucket {bucket} is in another region",
        "set AWS_REGION to the region of the bucket",
    ),
    "QuotaExceeded": ("the store's quota is used up", "delete something there, or ask for more"),
    "InvalidStorageClass": (
        "the store does not know this storage class",
        "correct mirror.storage_class in the site file",
    ),
    "KMS.NotFoundException": (
        "the store does not know this key",
        "correct mirror.kms_key in the site file",
    ),
}
_MISSING: Final = {
    "NoSuchKey": "object",
    "NotFound": "object",
    "404": "object",
    "NoSuchUpload": "upload (any more)",
}
#: A HEAD request is answered without a code.
_BY_STATUS: Final = {"400": "AccessDenied", "401": "AccessDenied", "403": "AccessDenied"}
_SAME: Final = {
    "RequestExpired": "RequestTimeTooSkewed",
    "AuthorizationHeaderMalformed": "PermanentRedirect",
    "IllegalLocationConstraintException": "PermanentRedirect",
    "InvalidSecurity": "AccessDenied",
    "AllAccessDisabled": "AccessDenied",
    "Forbidden": "AccessDenied",
    "Unauthorized": "AccessDenied",
    "ExpiredTokenException": "ExpiredToken",
    "XMinioStorageFull": "QuotaExceeded",
    "KMS.KMSInvalidStateException": "KMS.NotFoundException",
}
_TROUBLE: Final = frozenset({
    "InternalError", "ServiceUnavailable", "SlowDown", "RequestTimeout", "Throttling",
    "ThrottlingException", "RequestLimitExceeded", "BandwidthLimitExceeded", "OperationAborted",
    "XMinioServerNotInitialized", "TooManyRequests", "BadDigest", "IncompleteBody",
    "XAmzContentSHA256Mismatch",
})  # fmt: skip
_TEMPORARY: Final = (
    exceptions.HTTPClientError,
    exceptions.ConnectionError,
    exceptions.IncompleteReadError,
    exceptions.ResponseStreamingError,
    exceptions.ReadTimeoutError,
)

#: Errors of botocore and its callers if the answer is not S3's.
NOT_S3: Final = (ValueError, LookupError, TypeError, RecursionError)
#: Most characters of an error that are shown.
_SHOWN: Final = 300


def code_of(error: exceptions.ClientError) -> str:
    """Return S3's error code, or the HTTP status if there is none."""
    return str(error.response.get("Error", {}).get("Code", ""))[:_SHOWN]


def translated(error: Exception, doing: str, bucket: str, endpoint: str) -> HpcflowError:
    """Return hpcflow's error for botocore's, raised while ``doing`` (``send s3://b/x``)."""
    if isinstance(error, exceptions.ClientError):
        return _refused(error.response, code_of(error), doing, bucket, endpoint)
    if isinstance(error, exceptions.SSLError):
        return MirrorError(
            f"cannot {doing}: the certificate of {endpoint} is not trusted here: {error}",
            next_action="set AWS_CA_BUNDLE to the CA certificates of your site",
        )
    if isinstance(error, _TEMPORARY):
        return MirrorUnavailable(
            f"cannot {doing}: {endpoint} does not answer: {error}",
            next_action="nothing is lost, the mirror tries again; if it lasts, test it from this "
            f"machine: curl -I {endpoint}",
        )
    if isinstance(error, (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)):
        return MirrorError(
            f"cannot {doing}: no credentials for S3 were found",
            next_action="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write "
            "~/.aws/credentials; for a daemon, in its environment",
        )
    if isinstance(error, (exceptions.CredentialRetrievalError, exceptions.TokenRetrievalError)):
        return MirrorError(f"cannot {doing}: {error}", next_action=_WHO_AM_I)
    if isinstance(error, exceptions.ProfileNotFound):
        return InputError(f"cannot {doing}: {error}", next_action="correct AWS_PROFILE")
    if isinstance(error, NOT_S3) and not isinstance(error, exceptions.BotoCoreError):
        return MirrorError(
            f"cannot {doing}: the answer of {endpoint} is not S3: "
            f"{type(error).__name__}: {str(error)[:_SHOWN]}",
            next_action=f"see what answers there: curl -I {shell_word(endpoint)}",
        )
    return MirrorError(
        f"cannot {doing}: {error}", next_action=f"correct the URL, or check {endpoint}"
    )


def _refused(response: Any, code: str, doing: str, bucket: str, endpoint: str) -> MirrorError:
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = _SAME.get(code, code)
    if status in (429, 500, 502, 503, 504) or code in _TROUBLE:
        return MirrorUnavailable(
            f"cannot {doing}: {endpoint} has trouble ({code or status})",
            next_action="nothing is lost, the mirror tries again; if it lasts, tell the admins of "
            "the store",
        )
    if code in _MISSING:
        return Missing(f"cannot {doing}: there is no such {_MISSING[code]}")
    known = _REFUSED.get(code) or _REFUSED.get(_BY_STATUS.get(code, ""))
    if known is None:
        said = str(response.get("Error", {}).get("Message") or "").strip()[:_SHOWN]
        return MirrorError(
            f"cannot {doing}: the store says {code or status}{': ' if said else ''}{said}",
            next_action=f"check the bucket: aws s3 ls {shell_word(f's3://{bucket}')}",
        )
    wrong, next_action = (text.format(bucket=bucket, endpoint=endpoint) for text in known)
    return MirrorError(f"cannot {doing}: {wrong} ({code})", next_action=next_action)
