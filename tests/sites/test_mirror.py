"""Where the copies of a run go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hpcflow.errors import SiteError
from hpcflow.model.run import Mirror
from hpcflow.model.spec import RunSpec
from hpcflow.sites.mirror import mirror_of
from hpcflow.sites.schema import Site
from tests.sites.build import minimal, site

KNOWN = {"TEAM": "vision"}


def on(mirror: dict[str, Any]) -> Site:
    """A site with that mirror."""
    return site(minimal("alpha", f"mirror: {json.dumps(mirror)}" if mirror else ""))


def where(config: str | None, **mirror: Any) -> Mirror | None:
    spec = RunSpec.model_validate({"name": "a", "command": ["true"], "mirror": config})
    return mirror_of(spec, on(mirror), KNOWN, user="ada", account="physics")


def test_nowhere() -> None:
    assert where(None) is None
    assert where("never", url="s3://lab") is None


def test_where_the_site_says() -> None:
    assert where(None, url="s3://lab/$TEAM/${USER}/$ACCOUNT") == Mirror(
        url="s3://lab/vision/ada/physics"
    )


def test_where_the_config_says_and_how_the_site_does() -> None:
    how = {
        "url": "s3://lab",
        "endpoint_url": "https://s3.example.org",
        "encryption": "aws:kms",
        "kms_key": "alias/lab",
        "storage_class": "STANDARD_IA",
        "bandwidth": "200M",
        "retention": {"keep_last": 5, "keep_for": "30d"},
        "partition": "transfer",
    }
    assert where("/archive/$USER", **how) == Mirror(
        url="/archive/ada",
        endpoint_url="https://s3.example.org",
        encryption="aws:kms",
        kms_key="alias/lab",
        storage_class="STANDARD_IA",
        bandwidth_bytes_s=200 << 20,
        keep_last=5,
        keep_for_s=30 * 86400,
        partition="transfer",
    )


def test_a_variable_without_a_value() -> None:
    with pytest.raises(SiteError, match=r"\$NOBODY is not set") as caught:
        where("s3://lab/$NOBODY")
    assert caught.value.next_action is not None and "export NOBODY" in caught.value.next_action


@pytest.mark.parametrize(
    ("mirror", "wrong"),
    [
        ({"url": "lab"}, "not the URL of a store"),
        ({"url": "s3://a:b@lab"}, "credentials do not belong in a URL"),
        ({"url": "s3://lab", "kms_key": "x"}, "has no effect without"),
        ({"url": "s3://lab", "bandwidth": 200}, "a number without a unit"),
        ({"url": "s3://lab", "endpoint_url": "s3.example.org"}, "not a URL such as"),
        ({"url": "s3://lab", "encryption": "rot13"}, "AES256"),
        ({"bandwidth": "1G"}, "url"),
    ],
)
def test_what_a_site_file_may_not_say(mirror: dict[str, Any], wrong: str) -> None:
    with pytest.raises(SiteError, match=wrong):
        on(mirror)
