"""Roll-outs against the solver's simulations: planted faults, an exact copy, the floor, and bad input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from commands import refused
from judging import validated
from scipy import stats
from wakes import street

from calopipe.errors import InputError
from calopipe.grade import load_grade
from calopipe.verdict import summary
from validation.flow.compare import _floor, _judged, _mean

pytestmark = pytest.mark.usefixtures("undrawn")


def judged(folder: Path, *options: str, **faults: Any) -> dict[str, Any]:
    """The verdict on roll-outs of 25 frames of three simulations, each with the `faults`."""
    for simulation in range(3):
        own = {"phase": 0.3 * simulation, "strength": 1 + 0.05 * simulation, "reynolds": 100.0 + 20 * simulation}
        street(folder / f"solver{simulation}.h5", **own)
        changed = own | faults | {"phase": own["phase"] + faults.get("phase", 0.0)}
        street(folder / f"rollout{simulation}.h5", frames=25, start=8, **changed)
    return compared(folder, *options)


def compared(folder: Path, *options: str) -> dict[str, Any]:
    return validated(folder / "solver*.h5", folder / "rollout*.h5", folder / "verdict", *options)


def answers(verdict: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: each["verdict"] for each in verdict["criteria"]}


def test_an_exact_copy_is_accepted_unless_it_starts_from_a_simulation_of_the_training(tmp_path: Path) -> None:
    verdict = judged(tmp_path)
    assert verdict["verdict"] == "accepted"
    values = {each["key"]: each["value"] for each in verdict["criteria"]}
    assert values == pytest.approx({"strouhal": 1, "fluctuation": 1, "kinetic_energy": 1, **dict.fromkeys(
        ("divergence", "spectrum", "relative_l2"), 0.0)}, abs=1e-6)  # fmt: skip
    assert set(values) == set(load_grade("precision", "flow").tolerance)
    for number, each in enumerate(verdict["simulations"]):
        assert each["reference"] == f"solver{number}.h5"
        assert each["strouhal"] == pytest.approx([0.2, 0.2], rel=0.01)
        assert each["period_d"] == pytest.approx(5.0)
        assert each["steps_within"] is None
        assert {len(each["by_step"][name]) for name in ("psnr", "ssim", "relative_l2", "kinetic_energy")} == {25}
    frames = {side: [file["events"] for file in verdict["inputs"][side]] for side in ("reference", "candidate")}
    assert frames == {"reference": [40] * 3, "candidate": [25] * 3}
    page = (tmp_path / "verdict" / "report.html").read_text()
    assert page.count("<img") == 3 + 6
    assert "Roll-outs accepted" in page
    assert "3 simulations against 3 of the reference, paired" in summary(verdict)
    with h5py.File(tmp_path / "rollout1.h5", "a") as file:
        file.attrs["start_seen"] = True
    verdict = compared(tmp_path)
    assert verdict["verdict"] == "inconclusive"
    assert "1 of 3 roll-outs start from a simulation" in verdict["cautions"][0]["detail"]


def test_planted_faults_are_rejected_a_shift_by_the_errors_of_the_frames_alone(tmp_path: Path) -> None:
    for fault, failed in (({"frequency": 1.15}, "strouhal"), ({"noise": 0.05}, "divergence")):
        verdict = judged(tmp_path, **fault)
        assert (verdict["verdict"], answers(verdict)[failed]) == ("rejected", "fail")
    shifted = answers(judged(tmp_path, phase=0.25))
    assert {key for key, answer in shifted.items() if answer != "pass"} == {"relative_l2"}
    assert shifted["relative_l2"] == "fail"


def test_one_simulation_gives_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for phase in (0.1, 0.2, 0.3):
        street(tmp_path / f"solver{phase}.h5", phase=phase)
    street(tmp_path / "rollout.h5", frames=20, phase=0.18)
    verdict = compared(tmp_path)
    assert verdict["verdict"] == "inconclusive"
    assert [each["interval"] for each in verdict["criteria"]] == [None] * 6
    assert [each["reference"] for each in verdict["simulations"]] == ["solver0.2.h5"]  # by the first frame
    with pytest.raises(SystemExit, match="3"):
        compared(tmp_path, "--require", "accepted")
    assert "nothing to do" in capsys.readouterr().out


def test_the_floor_is_the_other_resolution_from_its_nearest_frame(tmp_path: Path) -> None:
    """Averaged over cells of half the width, the street is the same up to the size of cells, wherever it begins."""
    fine = street(tmp_path / "fine.h5", finer=2, frames=50, phase=0.2, strength=1.2)
    verdict = judged(tmp_path, "--floor", str(fine))
    assert verdict["verdict"] == "accepted"  # a floor decides nothing
    floors = {each["key"]: each["floor"]["value"] for each in verdict["criteria"]}
    assert {each["floor"]["events"] for each in verdict["criteria"]} == {1}  # of one of the three flows
    assert floors["fluctuation"] == pytest.approx(0.44, abs=0.05)  # its strength is 1.2 times that flow's
    assert floors["strouhal"] < 0.01
    assert 0.01 < floors["relative_l2"] < 0.08  # a fifth of the swing; a quarter of a period away it would be 0.2


def test_a_floor_is_a_root_mean_square_and_the_mean_over_simulations_has_its_standard_error() -> None:
    floors: Any = [SimpleNamespace(values={"strouhal": value}) for value in (1.3, 0.9, 1.0)]
    found = _floor(floors, "strouhal", 1.0)
    assert (found["value"], found["events"]) == (pytest.approx(np.sqrt((0.3**2 + 0.1**2) / 3)), 3)
    assert _mean([1.0, 2.0, 4.0, 4.5]).standard_error == pytest.approx(stats.sem([1.0, 2.0, 4.0, 4.5]))


def test_less_divergence_is_no_fault_and_two_simulations_have_an_interval() -> None:
    """Two roll-outs; and a criterion without a tolerance in the grade is not judged."""
    right = {"strouhal": 1.0, "fluctuation": 1.0, "kinetic_energy": 1.0, "spectrum": 0.0, "relative_l2": 0.0}
    rollouts: Any = [
        SimpleNamespace(values=right | {"divergence": value}, to_json=lambda limit: limit) for value in (-5.0, -5.1)
    ]
    grade = load_grade("precision", "flow")
    document = _judged(rollouts, rollouts[:1], grade, [])
    assert document["verdict"] == "accepted"
    assert document["events"] == {"reference": 2, "candidate": 2}
    assert {each["key"]: each["interval"] for each in document["criteria"]}["divergence"] is not None
    assert document["simulations"] + document["floors"] == [grade.tolerance["relative_l2"]] * 3
    alone = _judged(rollouts, [], replace(grade, tolerance=grade.tolerance | {"spectrum": np.inf}), [])
    assert {each["key"] for each in alone["criteria"]} == set(grade.tolerance) - {"spectrum"}
    assert {each["floor"]["value"] for each in alone["criteria"]} == {None}


def moved(path: Path) -> Path:
    """The file, with its obstacle elsewhere."""
    with h5py.File(path, "r+") as file:
        file["solid"][...] = np.roll(file["solid"][()], 1, axis=1)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: street(path, frames=20, reynolds=140.0), "Reynolds number 140"),
        (lambda path: street(path, frames=20, finer=2), "no --reference has its grid"),
        (lambda path: moved(street(path, frames=20)), "no --reference has its grid"),
        (lambda path: street(path, frames=8), "only 8 frames can be compared with .*a shedding period has 10"),
        (lambda path: street(path, start=50), "a frame at 25 D/U"),
        (lambda path: street(path, start=8.5, frames=20), "a frame at 4.25 D/U"),  # between two
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, change: Callable[[Path], Path], message: str) -> None:
    reference, output = street(tmp_path / "solver.h5"), tmp_path / "report"
    with pytest.raises(InputError, match=message):
        validated(reference, change(tmp_path / "r.h5"), output)
    assert not output.exists()


def test_what_does_not_shed_or_is_given_twice_is_refused(tmp_path: Path) -> None:
    still = street(tmp_path / "still.h5", strength=0.02)
    assert "still.h5: the wake swings by 0.0" in refused(still, still, tmp_path, command=validated)
    reference, rollout, _ = (street(tmp_path / f"{name}.h5") for name in ("solver", "rollout1", "rollout2"))
    with pytest.raises(InputError, match=r"rollout2.h5: a roll-out of .*solver.h5, like .*rollout1.h5"):
        compared(tmp_path)
    other = street(tmp_path / "other.h5", reynolds=60.0)
    with pytest.raises(InputError, match="no compared simulation has the Reynolds number 60"):
        validated(reference, rollout, tmp_path, "--floor", str(other))
