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
from judging import validated
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from scipy import stats

from calopipe.errors import BAD_INPUT_EXIT_CODE, InputError, one_line_errors
from calopipe.flow.files import Flow, flow_writer, open_flow
from calopipe.flow.grid import Grid
from calopipe.flow.mechanics import vorticity
from calopipe.grade import load_grade
from calopipe.verdict import summary
from validation.flow.compare import _RULES, _floor, _floors, _judged, _mean
from validation.flow.measured import Measured, _period, measure
from validation.flow.pairs import Frames, Pair, _same_flow, _stride, floor_frames, pair_of
from validation.flow.report import _by_step, _spectra, _vorticity

pytestmark = pytest.mark.usefixtures("undrawn")

CELL_D, INTERVAL_D = 0.25, 0.5
SHAPE = (48, 24)
SPEED, LENGTH = 0.8, 4.0  # of the street: its Strouhal number is 0.2, its period 10 frames


def street(
    path: Path,
    *,
    frames: int = 40,
    start: float = 0,
    phase: float = 0.0,
    strength: float = 1.0,
    frequency: float = 1.0,
    decay: float = 0.0,
    since: int = 0,
    finer: int = 1,
    reynolds: float = 100.0,
    noise: float = 0.0,
) -> Path:
    """A file of vortices that drift behind a square: the exact curl of a stream function, so without divergence.

    `phase` in periods, `frequency` in units of the street's, `decay` by frame `since` one, `finer` cells for each.
    """
    cell, shape = CELL_D / finer, (SHAPE[0] * finer, SHAPE[1] * finer)
    x, y = np.meshgrid(*[(np.arange(n) + 0.5) * cell for n in shape], indexing="ij")
    y = y - SHAPE[1] * CELL_D / 2
    number = np.arange(frames)[:, None, None]
    angle = 2 * np.pi * (x / LENGTH - SPEED / LENGTH * INTERVAL_D * (start + frequency * number) - phase)
    size = 0.4 * strength * np.exp(-decay * np.maximum(number - since, 0))
    u = 1 + size * 2 * y * np.exp(-(y**2)) * np.sin(angle)  # u = d psi / dy, v = -d psi / dx
    v = size * np.exp(-(y**2)) * 2 * np.pi / LENGTH * np.cos(angle)
    velocity = np.stack([u, v], axis=-1) + noise * np.random.default_rng(1).standard_normal((*u.shape, 2))
    solid = np.zeros(shape, dtype=np.bool_)
    solid[4 * finer : 8 * finer, 10 * finer : 14 * finer] = True
    velocity[:, solid] = 0
    flow = Flow(Grid(shape, cell, INTERVAL_D), solid, reynolds, (1.0, 1.0), "tests")
    with flow_writer(path, flow, first=INTERVAL_D * start) as write:
        write(velocity.astype(np.float32))
    return path


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


def paired(folder: Path, *, frames: int = 25, start: int = 8, **faults: Any) -> Pair:
    """A simulation, and a roll-out of it with the `faults`."""
    solver, rollout = folder / "solver.h5", folder / "rollout.h5"
    return pair_of(open_flow(street(rollout, frames=frames, start=start, **faults)), [open_flow(street(solver))])


def measured(pair: Pair, frames: Frames | None = None) -> Measured:
    """What is measured of the pair, or of other `frames` in place of the roll-out's."""
    return measure(pair, "rollout", pair.candidate.velocity(0, pair.count) if frames is None else frames)


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


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        ({"frequency": 1.15}, "strouhal"),
        ({"phase": 0.25}, "relative_l2"),
        ({"noise": 0.05}, "divergence"),
    ],
)
def test_planted_faults_are_rejected(tmp_path: Path, fault: dict[str, float], failed: str) -> None:
    verdict = judged(tmp_path, **fault)
    assert verdict["verdict"] == "rejected"
    assert answers(verdict)[failed] == "fail"
    if "phase" in fault:  # a shift leaves all but the frames' own errors as they are
        assert [key for key, answer in answers(verdict).items() if answer != "pass"] == ["relative_l2"]


def test_a_wake_that_decays_only_late_is_rejected_by_its_last_period(tmp_path: Path) -> None:
    """Its first period, of ten frames, is the solver's: what is judged of that passes."""
    verdict = judged(tmp_path, decay=0.2, since=12)
    assert (answers(verdict)["fluctuation"], answers(verdict)["relative_l2"]) == ("fail", "pass")
    values = {each["key"]: each["value"] for each in verdict["criteria"]}
    assert values["relative_l2"] == pytest.approx(0, abs=1e-6)
    assert values["fluctuation"] == pytest.approx(np.mean(np.exp(-0.4 * np.arange(3, 13))), rel=0.15)


@pytest.mark.parametrize(("frames", "compared"), [(34, 25), (33, 25), (32, 24), (24, 16)])
def test_frames_are_compared_as_far_as_both_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames: int, compared: int
) -> None:
    """A roll-out of 25 from the frame 8 of a simulation that goes on, ends with it, or before; or is stored twice as
    often.
    """
    reference = street(tmp_path / "solver.h5", frames=frames)
    rollout = street(tmp_path / "rollout.h5", frames=25, start=8)
    (found,) = validated(reference, rollout, tmp_path)["simulations"]
    assert len(found["by_step"]["relative_l2"]) == compared
    assert max(found["by_step"]["relative_l2"]) < 1e-6
    monkeypatch.setitem(globals(), "INTERVAL_D", INTERVAL_D / 2)
    often = open_flow(street(tmp_path / "often.h5", frames=2 * frames - 1))
    pair = pair_of(open_flow(rollout), [often])
    assert pair.count == compared
    beside = measured(pair)
    assert beside.period_d == pytest.approx(5.0)
    assert beside.strouhal == pytest.approx((0.2, 0.2), rel=0.01)


def test_the_limit_is_passed_at_the_step_that_a_drift_gives(tmp_path: Path) -> None:
    """Of a street that runs 10 % too fast the error at step n is |2 sin(pi n / 100)| of the fluctuation's norm."""
    verdict = judged(tmp_path, frequency=1.1)
    shape = np.sin(np.pi * np.arange(25) / 100)
    for each in verdict["simulations"]:
        errors = np.array(each["by_step"]["relative_l2"])
        assert errors / errors[-1] == pytest.approx(shape / shape[-1], abs=0.05)
        assert each["steps_within"] == int(np.argmax(errors > 0.1))


def test_one_simulation_gives_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for phase in (0.1, 0.2, 0.3):
        street(tmp_path / f"solver{phase}.h5", phase=phase)
    street(tmp_path / "rollout.h5", frames=20, phase=0.18)
    verdict = compared(tmp_path)
    assert verdict["verdict"] == "inconclusive"
    assert [each["interval"] for each in verdict["criteria"]] == [None] * 6
    assert [each["reference"] for each in verdict["simulations"]] == ["solver0.2.h5"]  # by the first frame
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        compared(tmp_path, "--require", "accepted")
    assert stopped.value.code == 3
    assert "nothing to do" in capsys.readouterr().out


def test_the_floor_is_the_other_resolution_from_its_nearest_frame(tmp_path: Path) -> None:
    """Averaged over cells of half the width the street is the same up to the cells' size, wherever it begins."""
    fine = street(tmp_path / "fine.h5", finer=2, frames=50, phase=0.2, strength=1.2)
    verdict = judged(tmp_path, "--floor", str(fine))
    floors = {each["key"]: each["floor"]["value"] for each in verdict["criteria"]}
    assert {each["floor"]["events"] for each in verdict["criteria"]} == {1}  # of one of the three flows
    assert floors["fluctuation"] == pytest.approx(0.44, abs=0.05)  # its strength is 1.2 times that flow's
    assert floors["strouhal"] < 0.01
    assert 0.01 < floors["relative_l2"] < 0.08  # a fifth of the swing; a quarter of a period away it would be 0.2


def test_a_floor_begins_where_it_goes_on_for_as_long_as_the_roll_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frame 6 of 54, stored twice as often, is the roll-out's first; its 25 frames fit in from the frame 5 on."""
    pair = paired(tmp_path)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "INTERVAL_D", INTERVAL_D / 2)
        often = open_flow(street(tmp_path / "often.h5", frames=54, start=10))
    np.testing.assert_array_equal(often.velocity(6, 7), pair.solver()[:1])
    np.testing.assert_array_equal(floor_frames(pair, often), often.velocity(5, 54)[::2])


def test_the_divergence_is_judged_in_units_of_the_solvers_vorticity(tmp_path: Path) -> None:
    pair = paired(tmp_path, noise=0.05, strength=0.5)
    found, (u, v) = measured(pair), np.moveaxis(pair.solver().astype(np.float64), -1, 0)
    turning = np.gradient(v, CELL_D, axis=1) - np.gradient(u, CELL_D, axis=2)
    rms = np.sqrt(np.mean(turning[:, ~pair.reference.solid] ** 2))
    mine, theirs = np.sqrt(np.mean(np.square(found.steps["divergence"]), axis=0))
    assert found.values["divergence"] == pytest.approx((theirs - mine) / rms, rel=1e-3)


def test_spectra_are_compared_where_the_solver_has_a_ten_thousandth_of_its_energy(tmp_path: Path) -> None:
    found = measured(paired(tmp_path, noise=0.02))
    solver, candidate = found.spectra.T
    held, rare = (solver > share * solver.sum() for share in (1e-4, 1e-2))
    assert 1 < rare.sum() < held.sum() < len(solver)
    expected = np.sqrt(np.mean(np.log10(candidate[held] / solver[held]) ** 2))
    assert found.values["spectrum"] == pytest.approx(expected, rel=1e-3)


def test_a_floor_is_a_root_mean_square() -> None:
    floors: Any = [SimpleNamespace(values={"strouhal": value}) for value in (1.3, 0.9, 1.0)]
    found = _floor(_RULES[0], floors)
    assert found["value"] == pytest.approx(np.sqrt((0.3**2 + 0.1**2) / 3))
    assert found["events"] == 3


def test_the_mean_over_simulations_has_its_standard_error() -> None:
    found = _mean([1.0, 2.0, 4.0, 4.5])
    assert found.standard_error == pytest.approx(stats.sem([1.0, 2.0, 4.0, 4.5]))


def test_less_divergence_is_no_fault_and_two_simulations_have_an_interval() -> None:
    """Both of two roll-outs; and where a grade has no tolerance for a criterion, it is not judged."""
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


def test_every_floor_is_measured_and_one_on_other_cells_is_refused(tmp_path: Path) -> None:
    pair = paired(tmp_path, frames=12)
    files = [open_flow(street(tmp_path / f"{name}.h5", frames=12, start=8)) for name in ("one", "two")]
    assert [floor.candidate for floor in _floors([pair], files)] == ["one.h5", "two.h5"]
    other: Any = SimpleNamespace(
        path="other.h5", grid=Grid((47, 24), CELL_D, INTERVAL_D), reynolds=100.0, obstacle_d=(1.0, 1.0)
    )
    with pytest.raises(InputError, match=r"other.h5: \(47, 24\) cells; --floor needs the \(48, 24\)"):
        floor_frames(pair, other)


@pytest.mark.parametrize(("stored", "stride"), [(0.5, 1), (0.2505, 2), (0.506, None), (0.3, None), (1.0, None)])
def test_frames_are_stored_at_the_interval_or_a_whole_part_of_it(stored: float, stride: int | None) -> None:
    file: Any = SimpleNamespace(path="solver.h5", grid=Grid(SHAPE, CELL_D, stored))
    if stride is None:
        with pytest.raises(InputError, match=r"solver.h5: frames every .* do not divide the roll-out's 0.5"):
            _stride(0.5, file)
    else:
        assert _stride(0.5, file) == stride


def test_a_faster_flow_is_measured_by_hand(tmp_path: Path) -> None:
    """A tenth too fast in the last period and twice as fast before, and anything in the obstacle."""
    pair = paired(tmp_path, start=0)
    frames, solid = pair.solver(), pair.reference.solid
    faster = frames * np.where(np.arange(25) < 15, 2, 1.1)[:, None, None, None]
    faster[:, solid] = 7
    found = measured(pair, faster.astype(np.float32))
    expected = {"strouhal": 1, "kinetic_energy": 1.1**2, "fluctuation": 1.1**2, "relative_l2": 1}
    assert {name: found.values[name] for name in expected} == pytest.approx(expected, rel=0.02)
    assert found.steps["relative_l2"] == pytest.approx([1.0] * 15 + [0.1] * 10, rel=1e-5)
    error = np.mean((0.1 * frames[24][~solid]) ** 2)
    assert found.steps["psnr"][24] == pytest.approx(10 * np.log10(np.ptp(frames) ** 2 / error), rel=1e-5)
    energy = np.mean(np.sum(frames[24][~solid].astype(np.float64) ** 2, axis=-1)) / 2
    assert found.steps["kinetic_energy"][24] == pytest.approx([energy, 1.1**2 * energy], rel=1e-5)
    energies = (15 * 2**2 + 10 * 1.1**2) / 25  # mean over the frames, of all wavenumbers alike but for the phase
    assert found.spectra[:, 1].sum() / found.spectra[:, 0].sum() == pytest.approx(energies, rel=0.02)
    assert [step for step, _, _ in found.pictures] == [8, 16, 24]
    for step, *both in found.pictures:
        for turning, factor in zip(both, (1, 2 if step < 15 else 1.1), strict=True):
            of_solver = np.where(solid, np.nan, vorticity(frames[step].astype(np.float64), CELL_D))
            np.testing.assert_allclose(turning, factor * of_solver, atol=1e-5)


def test_what_flows_before_the_obstacle_is_not_in_the_spectrum(tmp_path: Path) -> None:
    pair = paired(tmp_path, frames=12)
    frames = pair.solver()
    frames[:, :8] *= 3
    found = measured(pair, frames)
    assert found.values["spectrum"] == 0
    assert len(found.wavenumbers) == (SHAPE[0] - 8) // 2


def test_a_period_may_be_as_long_as_the_roll_out_but_eight_frames_are_needed(tmp_path: Path) -> None:
    """Periods of ten frames, and of five."""
    for frequency, least, period in ((1.0, 10, 10), (2.0, 8, 5)):
        file = street(tmp_path / "solver.h5", frequency=frequency)
        pair = pair_of(open_flow(file), [open_flow(file)])
        assert _period(replace(pair, count=least), "rollout") == period
        with pytest.raises(InputError, match=f"{least - 1} frames beside"):
            _period(replace(pair, count=least - 1), "rollout")


def _as_drawn(scale: float = 1.0, frames: int = 3) -> Measured:
    """Measures of three frames, or of fewer, whose numbers are their places."""
    step, turning = np.arange(frames, dtype=np.float64), np.arange(12.0).reshape(4, 3) - 20
    return Measured(
        candidate="rollout.h5", reference="solver.h5", interval_d=0.5, period_d=5.0, strouhal=(0.2, 0.2), values={},
        steps={"relative_l2": scale * step, "kinetic_energy": np.stack([scale * step, scale * step + 10], axis=1)},
        wavenumbers=np.array([0.5, 1.0]), spectra=np.array([[4.0, 8.0], [1.0, 3.0]]),
        pictures=[(step, turning, turning + 100) for step in (8, 16)],
    )  # fmt: skip


def test_the_pictures_are_of_the_solver_the_roll_out_and_what_is_too_much() -> None:
    """Vorticity of -20 to -9 by the solver, and of 100 more by the roll-out, on the solver's scale; y is upward."""
    figure = Figure()
    _vorticity(figure, _as_drawn(), height=4.0)
    assert [axis.get_title(loc="left") for axis in figure.axes[:3]] == ["Solver", "Roll-out", "Roll-out minus solver"]
    turning = np.arange(12.0).reshape(4, 3) - 20
    for axis, expected in zip(figure.axes, 2 * [turning, turning + 100, 100 + 0 * turning], strict=True):
        (image,) = axis.get_images()
        np.testing.assert_array_equal(image.get_array(), expected.T)
        assert image.origin == "lower"
        low, high = image.get_clim()
        assert low == -high
        assert 19 < high <= 20


def test_curves_are_of_each_roll_out_and_the_mean_of_all_as_far_as_the_shortest_goes() -> None:
    def lines(name: str, floors: list[Measured]) -> list[tuple[bool, list[float]]]:
        """Of each curve whether it is the roll-outs', and its values."""
        figure = Figure()
        _by_step(figure, name, name, [_as_drawn(), _as_drawn(3.0, frames=2)], floors)
        colours = {"#c8102e": True, "#3f3f3f": False}
        return [
            (next(of for colour, of in colours.items() if same_color(line.get_color(), colour)), [*line.get_ydata()])
            for line in figure.axes[0].get_lines()
        ]

    rollouts = [(True, [0, 1, 2]), (True, [0, 3]), (True, [0, 2])]
    assert lines("relative_l2", []) == rollouts
    assert lines("relative_l2", [_as_drawn(5.0), _as_drawn(7.0)]) == [*rollouts, (False, [0, 6, 12])]
    of_solver = [(False, [0, 1, 2]), (False, [0, 3]), (False, [0, 2])]
    of_rollouts = [(True, [10, 11, 12]), (True, [10, 13]), (True, [10, 12])]
    assert lines("kinetic_energy", [_as_drawn()]) == of_solver + of_rollouts


def test_spectra_are_drawn_at_their_wavenumbers_and_named_once() -> None:
    figure = Figure()
    _spectra(figure, [_as_drawn(), _as_drawn()])
    (axis,) = figure.axes
    drawn = [line.get_xydata().tolist() for line in axis.get_lines()]
    assert drawn == 2 * [[[0.5, 4.0], [1.0, 1.0]], [[0.5, 8.0], [1.0, 3.0]]]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["solver", "roll-out"]


def test_a_floor_may_be_shorter_than_the_roll_outs_but_not_than_a_period(tmp_path: Path) -> None:
    """Its frames begin with the roll-out's, and drift as in the test of the limit: over a period, by 10 % of one."""
    short = street(tmp_path / "short.h5", frames=14, start=8, frequency=1.1)
    verdict = judged(tmp_path, "--floor", str(short))
    (floor,) = verdict["floors"]
    assert len(floor["by_step"]["relative_l2"]) == 14
    assert floor["strouhal"] == pytest.approx([0.2, 0.22], rel=0.02)
    assert verdict["verdict"] == "accepted"  # a floor decides nothing
    with pytest.raises(InputError, match=r"few.h5: 9 frames beside those of .*; a shedding period has 10"):
        judged(tmp_path, "--floor", str(street(tmp_path / "few.h5", frames=9, start=8)))


@pytest.mark.parametrize("away", [0.009, 0.011])
def test_flows_are_one_up_to_a_hundredth_of_reynolds_number_and_obstacle(away: float) -> None:
    solver, other, longer = (
        SimpleNamespace(reynolds=reynolds, obstacle_d=(length, 1.0))
        for reynolds, length in ((100.0, 0.5), (100.0 * (1 + away), 0.5), (100.0, 0.5 * (1 + away)))
    )
    assert _same_flow(other, solver) == _same_flow(longer, solver) == (away < 0.01)


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
        (lambda path: street(path, frames=8), "8 frames beside those of .*a shedding period has 10"),
        (lambda path: street(path, start=50), "a frame at 25 D/U"),
        (lambda path: street(path, start=8.5, frames=20), "a frame at 4.25 D/U"),  # between two
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, change: Callable[[Path], Path], message: str) -> None:
    reference, output = street(tmp_path / "solver.h5"), tmp_path / "report"
    with pytest.raises(InputError, match=message):
        validated(reference, change(tmp_path / "r.h5"), output)
    assert not output.exists()


def test_what_does_not_shed_or_is_given_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    still = street(tmp_path / "still.h5", strength=0.02)
    with pytest.raises(SystemExit) as stopped, one_line_errors():
        validated(still, still, tmp_path)
    assert stopped.value.code == BAD_INPUT_EXIT_CODE
    assert "still.h5: the wake swings by 0.0" in capsys.readouterr().err
    reference, rollout, _ = (street(tmp_path / f"{name}.h5") for name in ("solver", "rollout1", "rollout2"))
    with pytest.raises(InputError, match=r"rollout2.h5: a roll-out of .*solver.h5, as is .*rollout1.h5"):
        compared(tmp_path)
    other = street(tmp_path / "other.h5", reynolds=60.0)
    with pytest.raises(InputError, match="a --floor of Reynolds number 60"):
        validated(reference, rollout, tmp_path, "--floor", str(other))
