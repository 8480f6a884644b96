"""Only URLs of a closed list are stores, whatever their source."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from fsspec import available_protocols
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.errors import InputError, SiteError, SpecError
from hpcflow.mirror.remote import Options
from hpcflow.mirror.stores import open_remote
from hpcflow.model.kinds import STORE_PROTOCOLS, check_store_url
from hpcflow.model.run import Mirror
from hpcflow.model.spec import RunSpec
from tests.mirror.runs import desk_in
from tests.sites.build import minimal, site

CHAINS: Final = [
    "reference://x::file:///tmp/ref.json",
    "zip://x::/tmp/a.zip",
    "tar://x::/tmp/a.tar",
    "jlab://host/x",
    "simplecache::s3://bucket/x",
    "filecache::http://evil.example.org/x",
    "s3://bucket/x::file:///etc",
    "/folder::reference://x",
    "::/folder",
    "file:///etc",
    "local:///etc",
    "http://evil.example.org/x",
    "https://evil.example.org/x",
    "ssh://host/x",
    "data:text/plain,x",
    "S3://bucket/x",
    "s3://bucket/./x",
    "gs://bucket/../x",
    "gs://bucket/*",
    "gs://bucket/a[b]",
    "s3://",
    "s3:///x",
    "s3://bucket/a b",
    "s3://bucket/x\n",
    "/folder\x1b[2J",
    "/folder\n",
]
FINE: Final = [
    "s3://bucket/prefix",
    "s3a://bucket",
    "gs://bucket/x/$USER",
    "gcs://bucket",
    "az://container/x",
    "abfs://container/x",
    "abfss://container",
    "/a/folder",
    "/a folder/with: colons/ü",
]


@pytest.mark.parametrize("url", FINE)
def test_stores(url: str) -> None:
    assert check_store_url(url) == url


@pytest.mark.parametrize("url", CHAINS, ids=ascii)
def test_no_stores(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"store|credentials"):
        check_store_url(url)
    with pytest.raises(InputError) as caught:
        open_remote(url)
    assert caught.value.next_action
    with pytest.raises((SpecError, ValueError)):
        RunSpec.model_validate({"name": "a", "command": ["true"], "mirror": url})
    with pytest.raises(SiteError):
        site(minimal("alpha", f"mirror: {json.dumps({'url': url})}"))
    desk = desk_in(tmp_path, url)
    run_dir = desk.make()  # what is frozen may say anything
    assert [type(error) for error in desk.mirror().problems.values()] == [InputError]
    assert run_dir.path.is_dir()


@pytest.mark.parametrize("kind", sorted({*available_protocols()} - {*STORE_PROTOCOLS}))
def test_nothing_else_that_fsspec_knows(kind: str) -> None:
    for url in (f"{kind}://x/y", f"{kind}://x::/tmp", f"/tmp::{kind}://x", f"{kind}::/tmp"):
        with pytest.raises(InputError):
            open_remote(url)


@given(st.lists(st.sampled_from([*available_protocols(), "::", "://", "/", "x", "s3", "\n"])))
def test_whatever_is_a_store_is_one_of_the_kinds(parts: list[str]) -> None:
    url = "".join(parts)
    try:
        check_store_url(url)
    except ValueError:
        return
    assert "::" not in url
    assert url.startswith("/") or url.partition("://")[0] in STORE_PROTOCOLS


@pytest.mark.parametrize(
    "endpoint",
    [
        "file:///etc",
        "http://[",
        "https://a b",
        "javascript:x",
        "http://x:99999999",
        "http://x\n",
        "",
    ],
)
def test_no_server(endpoint: str) -> None:
    with pytest.raises(InputError):
        open_remote("s3://bucket/x", Options(endpoint_url=endpoint))


def _reference(folder: Path) -> tuple[str, Path]:
    """A file for ``reference://``, whose template writes another file when it is rendered."""
    done, path = folder / "executed", folder / "ref.json"
    code = f"lipsum.__globals__.os.system('touch {done}')"
    said: dict[str, Any] = {
        "version": 1,
        "templates": {"u": "x"},
        "refs": {},
        "gen": [{"key": "{{ " + code + " }}", "url": "x", "dimensions": {"i": [1]}}],
    }
    path.write_text(json.dumps(said))
    return f"reference://x::file://{path}", done


def test_a_reference_executes_nothing(tmp_path: Path) -> None:
    """Whichever fsspec is there: it gets no such URL."""
    url, done = _reference(tmp_path)
    before = "fsspec.implementations.reference" in sys.modules
    desk = desk_in(tmp_path, url)
    desk.make()
    desk.mirror()
    with pytest.raises(InputError):
        open_remote(url, patience_s=0).names()
    assert not done.exists()
    assert before == ("fsspec.implementations.reference" in sys.modules)


def test_what_run_json_says_of_the_server_is_checked(tmp_path: Path) -> None:
    desk = desk_in(tmp_path, "s3://bucket/x")
    desk.make(endpoint_url="file:///etc/passwd")
    problems = desk.mirror().problems
    assert "not a URL such as https" in problems["s3://bucket/x"].message
    assert Mirror(url="s3://x").shared is False


@pytest.mark.parametrize("how", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "file"])
@pytest.mark.parametrize(
    "endpoint",
    [
        "http://ada:hunter2@127.0.0.1:9",
        "http://hunter2@127.0.0.1:9",
        "http://127.0.0.1:9/?token=hunter2",
        "http://127.0.0.1:9/#hunter2",
        "hunter2",
    ],
)
def test_a_password_in_the_url_of_the_server_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, how: str
) -> None:
    """It would stand in mirror.jsonl, which is mirrored, and in the ledger."""
    config = tmp_path / "config"
    config.write_text(f"[default]\nendpoint_url = {endpoint}\n" if how == "file" else "")
    known = {"AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"}
    known |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    if how != "file":
        known[how] = endpoint
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError) as caught:
        open_remote("s3://bucket/p", patience_s=0).folders()
    assert "hunter2" not in f"{caught.value.message} {caught.value.next_action}"
