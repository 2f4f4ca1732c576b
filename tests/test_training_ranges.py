"""A warm start on showers of another range: the model's constants say nothing of them, so training begins anew."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from showers import SMALL_GEOMETRY

from calopipe.errors import InputError
from training import fit, folder
from training.configs import named_config
from training.registry.retraining import _may_begin

_RANGE = {"energy_gev": (100.0, 200.0), "theta_rad": (1.1, 2.0)}


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({}, ""),
        ({"energy_gev": (120.0, 180.0)}, ""),
        ({"energy_gev": (98.0, 204.0)}, ""),
        ({"energy_gev": (10.0, 400.0)}, "energy_gev 100 to 200, the dataset of 10 to 400"),
        ({"energy_gev": (100.0, 230.0)}, "energy_gev 100 to 200"),
        ({"theta_rad": (0.9, 2.0)}, "theta_rad 1.1 to 2"),
    ],
)
def test_which_ranges_go_on(changed: dict[str, Any], differs: str) -> None:
    """A tenth of the range, in log E and in the cosine, may be added at either end."""
    reason = named_config("fast").begins_anew(_RANGE, _RANGE | changed)
    assert (differs in reason) if differs else not reason
    assert not named_config("3dgan").begins_anew(_RANGE, _RANGE | changed)  # it has no constants of its showers


def test_retraining_says_why_it_begins_anew(capsys: pytest.CaptureFixture[str]) -> None:
    config = named_config("fast")
    incumbent: Any = SimpleNamespace(config=config, valid_range=_RANGE)
    wider: Any = SimpleNamespace(valid_range=_RANGE | {"energy_gev": (10.0, 400.0)})
    assert _may_begin(incumbent, config, incumbent)
    assert not _may_begin(incumbent, config, wider)
    *_, last = capsys.readouterr().out.splitlines()
    assert "new weights" in last
    assert "100 to 200, the dataset of 10 to 400" in last


def test_a_training_that_is_told_to_begin_with_weights_of_another_range_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = named_config("fast")
    old: Any = SimpleNamespace(config=config, geometry=SMALL_GEOMETRY, valid_range=_RANGE)
    wider: Any = SimpleNamespace(geometry=SMALL_GEOMETRY, valid_range=_RANGE | {"energy_gev": (10.0, 400.0)})
    monkeypatch.setattr(folder, "read_card", lambda _: old)
    assert fit._earlier(tmp_path / "old", tmp_path / "new", config, old) is old
    told = r"--warm-start .*old: that is of energy_gev 100 to 200, the dataset of 10 to 400; leave --warm-start out"
    with pytest.raises(InputError, match=told):
        fit._earlier(tmp_path / "old", tmp_path / "new", config, wider)
