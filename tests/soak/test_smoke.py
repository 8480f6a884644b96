"""The long proofs themselves work: a few tries of each. The rest is ``make soak``."""

from __future__ import annotations

import pytest

from tests.soak.__main__ import PARTS, main, soak


@pytest.mark.parametrize("part", PARTS)
def test_a_few_tries_of_each_part_find_nothing(part: str) -> None:
    findings = soak(part, seed=3, tries=2)
    assert findings.tries == 2
    assert not findings.kinds


def test_a_part_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["corrupt"])
    assert refused.value.code == 2
    assert "no part corrupt; there are: corruptions" in capsys.readouterr().err
