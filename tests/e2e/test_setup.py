"""The first command of a new user on a cluster: `hpcflow setup`, and `hpcflow doctor` after it."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Hpcflow

pytestmark = pytest.mark.cluster


def test_setup_is_all_that_a_new_user_types(hpcflow: Hpcflow) -> None:
    try:
        said = hpcflow("setup", "--yes").stdout
        assert "this machine belongs to site devcluster: " in said
        assert said.endswith("check your own config next: hpcflow run CONFIG --dry-run\n")
        assert hpcflow.json("show", "trial")["state"] == "completed"
        found = hpcflow.json("doctor")["checks"]
        wrong = [each for each in found if each["level"] == "error"]
        assert wrong == []
        said_of = {each["check"]: each["message"] for each in found}
        assert said_of["clock"] == "agrees with the controller"
        assert said_of["account"].startswith("physics; QOS ")
        assert "accepted, partition " in said_of["job"]
        assert hpcflow.json("show", "trial")["is_unsupervised"] is False
    finally:
        hpcflow("daemon", "uninstall")
