"""The estimate of a training: its work against counts by hand, the model of time against rings and publications."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import estimate as published
import numpy as np
import pytest
import tensorflow as tf
from commands import refused
from servers import said
from showers import SMALL_GEOMETRY, make_dataset, make_file
from trainings import engine_of

from calopipe.errors import InputError
from calopipe.showers.cells import REFERENCE_GEOMETRY
from preprocessing.dataset import read_manifest
from training import __main__ as command
from training.configs import named_config
from training.estimate import commands
from training.estimate import work as counting
from training.estimate.catalogue import BUILT_IN, Catalogue, Kind, Link, Peak, Price, Rate, load_catalogue
from training.estimate.estimate import Pace, Work, estimate, exchange_seconds, pace_of, step_seconds


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


@pytest.fixture(scope="module")
def work() -> Work:
    """The work of the reference's training."""
    return published.our_work()


@cache
def _small(**settings: Any) -> Work:
    return counting.work_of(named_config("small").with_values(settings), SMALL_GEOMETRY)


# The work of a step


def test_a_step_of_the_reference_costs_what_its_layers_say(work: Work) -> None:
    """In G multiplications: forward 3.061 of the generator, 1.896 of the discriminator (.187 in its first layer)."""
    # forward once without a gradient and twice with; the first layers' inputs have no gradient where nobody asks
    assert work.flop / 2e9 == pytest.approx(7 * 3.061 + 10 * 1.896 - 2 * 0.187, rel=5e-4)


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (tf.matmul, [(3, 5), (5, 7)], 2 * 3 * 5 * 7),
        (lambda a, b: tf.matmul(a, b, transpose_a=True), [(5, 3), (5, 7)], 2 * 3 * 5 * 7),
        (lambda a, b: tf.matmul(a, b, transpose_b=True), [(4, 3, 5), (4, 7, 5)], 2 * 4 * 3 * 5 * 7),
        (lambda a, b: tf.einsum("nlk,jlk->nlj", a, b), [(2, 3, 5), (7, 3, 5)], 2 * 2 * 3 * 5 * 7),
        (lambda a, b: tf.nn.conv2d(a, b, 2, "SAME"), [(2, 6, 4, 3), (3, 3, 3, 5)], 2 * 2 * 3 * 2 * 27 * 5),
        (lambda a, b: tf.gradients(tf.nn.conv3d(a, b, [1] * 5, "VALID"), b), [(2, 4, 4, 4, 3), (2, 2, 2, 3, 5)],
         2 * 2 * 27 * 24 * 5),
        (lambda a, b: tf.gradients(tf.nn.conv2d(a, b, 1, "VALID"), a), [(2, 4, 4, 3), (2, 2, 3, 5)],
         2 * 2 * 9 * 12 * 5),
    ],
)  # fmt: skip
def test_operations_are_counted(function: Callable[..., Any], shapes: list[Any], expected: int) -> None:
    """By hand. For a gradient only the wanted one counts, without a forward pass that it does not need."""

    def made(records: tf.Tensor) -> Any:
        return function(*(tf.zeros(shape) + tf.cast(tf.size(records), tf.float32) for shape in shapes))

    assert counting._flop(counting._operations(made, 1)) == expected


def test_what_replicas_exchange_follows_from_the_weights(work: Work) -> None:
    """1,365,047 parameters, 64 of them not trained; and 87,402, in which three layers have 16 not trained each
    (docs/reference.md). The last exchange carries 18 losses, the request to stop and the parameters not trained.
    """
    generator, discriminator, statistics = 1_365_047 - 64, 87_402 - 48, 64 + 48
    expected = (discriminator, discriminator, generator, generator + 18 + 1 + statistics)
    assert work.collectives == tuple(4 * count for count in expected)
    assert work.gradients == 4 * generator


def test_the_state_is_what_a_checkpoint_holds(dataset: Path) -> None:
    engine = engine_of(named_config("small", average=0.9), dataset)
    held = sum(value.nbytes for value in engine.state().values())
    assert _small(average=0.9).state == held


def test_activations_are_kept_by_shower() -> None:
    """At least the outputs of one network's convolutions, since the gradient of the next layer needs them."""
    few, many = _small(batch=4).activations, _small().activations  # of 8
    assert many == pytest.approx(2 * few, rel=0.01)
    convolutions = 4 * 4 * (18 * 18 * 9 * 8 + 18 * 18 * 6 * 6 * 2)  # bytes of four showers, from networks.SMALL
    assert convolutions < few < 20 * convolutions


@pytest.mark.slow
def test_the_rate_of_the_likelihood_model_is_the_measured_one(catalogue: Catalogue) -> None:
    """360 showers a second, .91 of that since densities came, .83 since there are more, .97 since hits are counted,
    .83 since their shares have one density, .98 since budgets are off by what one hit adds.
    """
    likelihood = counting.work_of(named_config("fast"), REFERENCE_GEOMETRY)
    rate = catalogue.kind["cpu"].rate_of("autoregressive", "float32")
    assert 1e12 * rate.tflops / likelihood.flop == pytest.approx(360 * 0.91 * 0.83 * 0.97 * 0.83 * 0.98, rel=0.01)


# Time and cost


@pytest.mark.parametrize(("devices", "hosts"), [(1, 1), (2, 1), (24, 3)])
def test_collectives_take_what_rings_take(catalogue: Catalogue, devices: int, hosts: int) -> None:
    """For n devices, n - 1 rounds add one of n parts, and n - 1 rounds spread the sums; hosts form another ring."""
    kind, sizes, expected = catalogue.kind["v100"], (5e6, 1e6, 4.0), 0.0
    for link, n in ((kind.local, min(devices, 8)), (kind.network, hosts)):
        for size in sizes:
            rounds = [link.alpha_s + size / n / (1e9 * link.gb_a_second)] * (n - 1)
            expected += sum(rounds + rounds)
    assert exchange_seconds(sizes, kind, devices) == pytest.approx(expected)


def test_limits_of_a_step(catalogue: Catalogue, work: Work) -> None:
    kind, pace = catalogue.kind["v100"], Pace(0.01, 0.1)
    assert step_seconds(work, kind, 1, pace, input_rate=1e9) == pytest.approx(64 * 0.01 + 0.1)
    assert step_seconds(work, kind, 16, pace, input_rate=100) == pytest.approx(64 * 8 / 100)  # a host feeds eight
    several = step_seconds(work, kind, 64, pace, input_rate=1e9)
    assert several == pytest.approx(0.74 + exchange_seconds(work.collectives, kind, 64))
    slow = step_seconds(work, kind, 16, Pace(0.0, 0.0), input_rate=1e9, alpha=2.0)  # which bandwidth does not change
    latency = len(work.collectives) * (2 * 7 * 321e-6 + 2 * 1 * 542e-6)
    assert slow == pytest.approx(exchange_seconds(work.collectives, kind, 16) + latency)


@pytest.mark.parametrize(
    ("every", "steps_an_epoch", "last"), [(0, 7, 35), (0, 7, 30), (4, 7, 35), (20, 7, 48), (100, 7, 20)]
)
def test_looks_are_those_of_the_training(every: int, steps_an_epoch: int, last: int) -> None:
    """Evaluations: before the training, at the end of each epoch that holds a multiple of `every`, and at the end."""
    config = named_config("small", evaluation_steps=every, epochs=100, steps=last)
    epochs = {-(-step // steps_an_epoch) for step in range(every or 1, last + 1, every or 1)}
    assert config.last_step(steps_an_epoch) == last
    assert config.evaluations(steps_an_epoch) == 1 + len(epochs | {-(-last // steps_an_epoch)})


def _kind(platform: Any, float32: float, *rates: Rate, bfloat16: float | None = None, alpha_s: float = 0.0) -> Kind:
    """A kind of device that costs one dollar on demand and half a dollar spot. Its links have only a latency."""
    link = Link(alpha_s, 1e9)
    return Kind(
        platform=platform, devices_a_host=8, peak=Peak(float32, bfloat16=bfloat16), memory_gb=16,
        local=link, network=link, start_s=(1.0, 2.0, 3.0), price=Price(1.0, 0.5), rate=list(rates),
    )  # fmt: skip


def _catalogue(**kinds: Kind) -> Catalogue:
    return Catalogue(date(2026, 1, 1), 1e9, kinds)


def _rate(tflops: float, *, model: str = "m", spread: tuple[float, float] = (1.0, 1.0), step_s: float = 0.0) -> Rate:
    return Rate(model, "float32", tflops, spread, step_s)


_WORK = Work("m", "float32", 10, 2e12, 0.5, (0.0,), state=0.0, gradients=0.0, activations=0.0)


def test_the_pace_by_what_the_catalogue_knows_of_the_model() -> None:
    """Seconds for 2 TFLOP a shower: least, likely and most."""
    kinds = {
        "own": _kind("gpu", 10.0, _rate(4.0, spread=(0.5, 2.0), step_s=0.1)),
        "half": _kind("gpu", 8.0, _rate(4.0)),
        "fifth": _kind("gpu", 20.0, _rate(4.0), _rate(19.0, model="another")),
        "new": _kind("gpu", 10.0, bfloat16=40.0),
        "tpu": _kind("tpu", 40.0),
        "slow": _kind("cpu", 1.0, _rate(0.02, spread=(0.8, 1.5))),
        "slower": _kind("cpu", 1.0, _rate(0.001, model="another")),
    }
    known = _catalogue(**kinds)

    def told(kind: str, **of_work: Any) -> tuple[list[float], list[float], str]:
        pace, basis = pace_of(replace(_WORK, **of_work), kinds[kind], known)
        return list(pace.shower_s), list(pace.step_s), basis

    assert told("own") == (pytest.approx([0.25, 0.5, 1.0]), pytest.approx([0.05, 0.1, 0.2]), "this kind's rate")
    # of the shares 0.4, 0.5 and 0.2 of the peak the middle one, and the outer ones half as far again
    others = [2 / (10 * 0.5 * 1.5), 2 / (10 * 0.4), 1.5 * 2 / (10 * 0.2)]
    assert told("new") == (pytest.approx(others), [0, 0, 0], "other kinds' rates")
    # in a precision that nobody has a rate for, its peak's best or the worst of float32
    best, worst = 2 / (40 * 0.5 * 1.5), 1.5 * 2 / (10 * 0.2)
    assert told("new", precision="bfloat16")[0] == pytest.approx([best, (best * worst) ** 0.5, worst])
    # between the peak of a platform without rates and the processor that has one of the model, or the slowest of all
    assert told("tpu") == (pytest.approx([0.05, (0.05 * 150) ** 0.5, 150]), [0, 0, 0], "bounds: wide")
    assert told("tpu", model="new")[0] == pytest.approx([0.05, 10.0, 2000.0])


def test_an_estimate_in_round_numbers() -> None:
    """A shower takes 0.1 s; 95 showers are nine steps an epoch, two epochs 18 steps; three evaluations of no shower."""
    known = _catalogue(one=_kind("gpu", 100.0, _rate(20.0), alpha_s=0.5))
    config = named_config("small", batch=10, epochs=2)
    alone = estimate(_WORK, config, known, "one", 1, train=95, validation=0)
    seconds = np.array([19, 20, 21])
    np.testing.assert_allclose(alone.epoch_s, [9, 9, 9])
    np.testing.assert_allclose(alone.total_s, seconds)
    np.testing.assert_allclose(alone.on_demand, seconds / 3600)
    np.testing.assert_allclose(alone.spot, seconds / 7200)
    # two devices: four steps an epoch, of a second and another one of latency, half of that or twice as much
    two = estimate(_WORK, config, known, "one", 2, train=95, validation=0)
    np.testing.assert_allclose(two.epoch_s, [6, 8, 12])
    np.testing.assert_allclose(two.efficiency, [1 / 3, 1 / 2, 1 / 1.5])
    np.testing.assert_allclose(two.on_demand, 2 * np.array([13, 18, 27]) / 3600)
    # 70 are three batches of 32, two for the busier device, and a look takes half of a training step
    looked = estimate(_WORK, config, known, "one", 2, train=95, validation=70)
    assert looked.total_s[1] == pytest.approx(two.total_s[1] + 3 * 64 * 0.1 / 2)
    with pytest.raises(InputError, match="10 devices of batch 10 take 100 showers a step, and there are 95 in"):
        estimate(_WORK, config, known, "one", 10, train=95, validation=0)
    holding = replace(_WORK, state=1e9, gradients=2e9, activations=4e9)
    held = estimate(holding, config, known, "one", 1, train=95, validation=0)
    np.testing.assert_allclose(held.memory_gb, [5.5, 8.0, 12.5])
    assert held.total_s[1] == pytest.approx(20 + 3 * 5)  # a GB is written in five seconds at each look


# What was published


def test_every_published_figure_is_met(catalogue: Catalogue) -> None:
    errors = [abs(published.error(each, catalogue)) for each in published.FIGURES if not each.calibrates]
    assert len(errors) > 20
    assert statistics.median(errors) < 0.05
    assert max(errors) < 0.15


def test_the_catalogue_is_what_the_calibrating_figures_say(catalogue: Catalogue) -> None:
    kind = catalogue.kind["v100"]
    rate = kind.rate_of("3dgan", "float32")
    stated = (rate.tflops, rate.step_s, kind.local.alpha_s, kind.network.alpha_s)
    assert stated == pytest.approx(published.fit_v100(catalogue), rel=0.005)
    for each in (each for each in published.rates() if each.calibrates):
        other = catalogue.kind[each.kind]
        found = other.rate_of("3dgan", each.precision)
        assert found.tflops == pytest.approx(published.fit_rate(each, other), rel=0.005), each


def test_kinds_without_a_rate_are_within_the_range_of_the_others(catalogue: Catalogue) -> None:
    for each in published.rates():
        seconds = each.seconds if each.step else each.seconds / published.steps(each)
        least, _, most = published.by_others(each, catalogue)
        assert least < seconds < most, each


# The catalogue


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("spot = 1.09", 'spot = "cheap"', "kind.v100.price.spot is 'cheap', expected a number"),
        ("spot = 1.09", "spt = 1.09", "kind.v100.price.spt is unknown, known: "),
        ("tflops = 3.003", "tflops = 0", r"kind.v100.rate\[0\].tflops is 0, expected a number above 0"),
        ("tflops = 3.003, ", "", r"kind.v100.rate\[0\].tflops is missing"),
        ("alpha_s = 321e-6", "alpha_s = true", "kind.v100.local.alpha_s is True"),
        ('platform = "gpu"', 'platform = "fpga"', "kind.v100.platform is 'fpga', expected one of cpu, gpu, tpu"),
        ("start_s = [60, 120, 180]", "start_s = [60]", r"kind.v100.start_s is \[60\], expected a list of 3"),
        ("[kind.v100]", "[kind.v100", "Expected .*line 16"),
    ],
)
def test_a_bad_catalogue_is_one_line_that_names_the_field(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = tmp_path / "mine.toml"
    text = BUILT_IN.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=told) as caught:
        load_catalogue(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


# The command


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--showers", "0", "--devices", "v100"], "--showers is 0, expected at least 1"),
        (["--showers", "9", "--devices", "v99"], "--devices v99: unknown kind 'v99'; known: v100"),
        (["--showers", "9", "--devices", "v100:0"], "--devices v100:0: expected KIND or KIND:COUNT"),
        (["--showers", "9", "--devices", "v100", "--catalogue", "none.toml"], "--catalogue none.toml: no such file"),
        (["--devices", "v100"], "one of the arguments --dataset --showers is required"),
    ],
)
def test_bad_options_are_one_line(arguments: list[str], told: str) -> None:
    assert told in refused(["estimate", *arguments], command=command.main)


def test_an_empty_train_split_is_told_of_before_tensorflow_is_loaded(tmp_path: Path) -> None:
    make_dataset(tmp_path / "ds", make_file(tmp_path / "a.h5", events=20), split_files=["test=a.h5"])
    given = ["estimate", "--config", "small", "--dataset", str(tmp_path / "ds"), "--devices", "v100"]
    program = f"import sys; from training.__main__ import main\ntry: main({given})\nexcept ValueError as error: "
    told = said(sys.executable, "-c", f"{program}print('tensorflow' in sys.modules, error)")
    assert told.startswith("False 1 devices of batch 8 take 8 showers a step, and there are 0 in the train split; give")


def test_the_command_prints_a_row_a_kind_for_the_datasets_showers_and_says_where_memory_is_short(
    dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[Any, dict[str, int]]] = []

    def noted(*arguments: Any, **showers: int) -> Any:
        asked.append((arguments[3:], showers))
        return estimate(*arguments, **showers)

    monkeypatch.setattr(commands, "estimate", noted)
    monkeypatch.setattr(counting, "work_of", lambda *_: _WORK)
    mine = tmp_path / "mine.toml"
    small = BUILT_IN.read_text().replace("memory_gb = 16", "memory_gb = 0.75", 1)
    mine.write_text(small.replace("on_demand = 2.48", "on_demand = 248"))

    def told(*arguments: str) -> tuple[str, list[list[str]]]:
        command.main(["estimate", *arguments])
        out = capsys.readouterr().out
        return out, [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line[:1] == "|"]

    out, first = told("--config", "small", "--dataset", str(dataset), "--devices", "v100:2", "a10:2")
    manifest = read_manifest(dataset)
    showers = {split: manifest.count(split) for split in ("train", "validation")}
    assert asked == [(("v100", 2), showers), (("a10", 2), showers)]
    begin = f"3dgan-small, batch 8 a device, float32, on {showers['train']} training showers: 2e+03 GFLOP each"
    assert out.startswith(f"{begin}; catalogue of {load_catalogue().date}\n")
    assert [row[0] for row in first] == ["devices", first[1][0], "2 x v100", "2 x a10"]
    assert "too few" not in out
    given = ("--config", "small", "--dataset", str(dataset), "--catalogue", str(mine))
    out, second = told(*given, "--devices", "v100:2", "--devices", "a10:2")  # given twice: both count
    dear, cheap = (float(each[2][5].split()[0]) for each in (second, first))
    assert dear == pytest.approx(100 * cheap, rel=0.02)
    assert first[3] == second[3]
    assert "v100 has 0.75 GB, which are likely too few" in out
    assert "a10 has" not in out
    assert first[3][6] == "unknown"  # what a10 costs at a spot price
    told("--config", "fast", "--devices", "v100", "--showers", "5000")
    assert asked[-1] == (("v100", 1), {"train": 3500, "validation": 250})
    with pytest.raises(InputError, match="the model 3dgan-small is for"):
        told("--config", "small", "--devices", "v100", "--showers", "5000")


def test_figures_have_three_digits_or_all_before_the_point_and_times_the_unit_that_suits() -> None:
    assert commands._text(np.array([0.012345, 99.94, 1234.6]), 1, "%") == "99.9% (0.0123-1235)"
    times = {120: "120 s (60-240)", 180: "3 min (1.5-6)", 10800: "3 h (1.5-6)"}
    for seconds, told in times.items():
        assert commands._time(seconds * np.array([0.5, 1, 2])) == told


def test_the_table_of_the_guide_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parent.parent / "docs/scaling.md").read_text()
    documented = next(line for line in page.splitlines() if "training estimate --config 3dgan --showers" in line)
    command.main(documented.split()[3:])
    table = [line for line in page.partition("```\n")[2].partition("```")[0].splitlines() if line]
    assert [line for line in capsys.readouterr().out.splitlines() if line] == table
