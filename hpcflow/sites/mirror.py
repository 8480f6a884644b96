"""The URL of a run's mirror: the site's ``mirror`` or the config's, with variables filled in."""

from __future__ import annotations

from collections.abc import Mapping

from hpcflow.errors import SiteError, Where
from hpcflow.model.kinds import check_store_url
from hpcflow.model.run import Mirror
from hpcflow.model.spec import RunSpec
from hpcflow.sites.schema import Site
from hpcflow.sites.scratch import fill_in


def mirror_of(
    spec: RunSpec, site: Site, environ: Mapping[str, str], *, user: str, account: str | None
) -> Mirror | None:
    """Return the mirror of a run of ``spec`` on ``site``; None if it has none.

    If the config names another URL, the site's other mirror settings still apply.

    Raises:
        SiteError: a variable in the URL has no value, or an invalid one.
    """
    if spec.mirror == "never" or (spec.mirror is None and site.mirror is None):
        return None
    how = site.mirror
    is_own = spec.mirror is not None
    text = spec.mirror or (how.url if how is not None else "")
    where = Where(key="mirror") if is_own else site.where("mirror", "url")

    def unset(name: str) -> SiteError:
        return SiteError(
            f"the mirror of this run is {text!r}, and ${name} is not set",
            where=where,
            next_action=f"export {name}; or set another URL in the config: mirror: s3://…; or "
            "disable it: mirror: never",
        )

    url = fill_in(text, {**environ, "USER": user, "ACCOUNT": account or ""}, unset)
    try:
        check_store_url(url)
    except ValueError as error:
        raise SiteError(
            f"the mirror of this run is {text!r}: {error}",
            where=where,
            next_action="check the variables in your environment",
        ) from None
    if how is None:
        return Mirror(url=url)
    return Mirror(
        url=url,
        endpoint_url=how.endpoint_url,
        encryption=how.encryption,
        kms_key=how.kms_key,
        storage_class=how.storage_class,
        bandwidth_bytes_s=how.bandwidth_mb_s << 20 if how.bandwidth_mb_s is not None else None,
        keep_last=how.retention.keep_last,
        keep_for_s=how.retention.keep_for_s,
        partition=how.partition,
        shared=how.shared,
    )
