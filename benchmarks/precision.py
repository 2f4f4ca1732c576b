"""Is training in bfloat16 harmless? The losses of its first steps against those in float32, over several seeds.

    python benchmarks/precision.py --input 'data/geant4/*.h5' --output docs/precision.png [--quick]

The config `small` is trained on the sample's showers, three by three cells and five layers joined. Differences are by
seed: first weights, batches, noise and flips of labels are shared; dropout's masks are not on CPUs, where tensors in
float32 are laid out otherwise. Rounding alone parts trajectories: how far, shows a float32 whose first weights differ.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter
from PIL import Image
from scipy import stats

from calopipe import storage
from calopipe.errors import run_command
from calopipe.events.splits import SplitRule
from calopipe.showers.selection import Selection
from preprocessing.manifest import Manifest
from preprocessing.pipeline import preprocess
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings
from training.configs import FitConfig, named_config
from training.engine.step import Engine
from training.engine.strategies import make_strategy

Loss = tuple[str, str]  # phase, name
Curves = dict[Loss, npt.NDArray[np.float64]]  # (seeds, steps)

_JOINED = {"cell_mm": 15.3, "layer_pitch_mm": 20.0, "x0_per_layer": 5.02, "file_unit_gev": 0.02}
_SMOOTHED, _LAST = 20, 50  # steps
_AXES = {"generation": "cross-entropy (nat)", "auxiliary": "energy off (%)", "angle": "angle off (rad)",
         "ecal": "energy sum off (%)"}  # fmt: skip
_COLOURS = ("#3f3f3f", "#1f77b4", "#c8102e")

BASE = "float32"  # each form: precision, and relative size of the normal errors that the first weights are given
FORMS = {BASE: ("float32", 0.0), "float32, first weights 1e-7 off": ("float32", 1e-7), "bfloat16": ("bfloat16", 0.0)}


def join(source: Path, target: Path) -> None:
    """The showers of `source` in cells of three by three of its own and layers of five: (N, 17, 17, 5)."""
    with h5py.File(source) as fine, h5py.File(target, "w") as coarse:
        coarse["ECAL"] = fine["ECAL"][()].reshape(-1, 17, 3, 17, 3, 5, 5).sum(axis=(2, 4, 6))
        coarse["energy"], coarse["theta"] = fine["energy"][()], fine["theta"][()]
        coarse.attrs.update(_JOINED)


def train(config: FitConfig, error: float, steps: int, dataset: Path, manifest: Manifest) -> list[dict[Loss, float]]:
    """The losses of each step of a training whose first weights are multiplied by 1 + `error` times normal numbers."""
    engine = Engine(config, dataset, manifest, make_strategy("one-device"))
    rng = np.random.default_rng(config.seed)
    for variable in (v for network in engine.model.networks.values() for v in network.trainable_variables):
        variable.assign(variable.numpy() * (1 + error * rng.standard_normal(variable.shape)))
    batches = iter(engine.batches())
    tables = [engine.table(engine.run(batches, 1)[0]) for _ in range(steps)]
    return [{(phase, name): value for phase, row in table.items() for name, value in row.items()} for table in tables]


def stacked(runs: list[list[dict[Loss, float]]]) -> Curves:
    """The curves of `runs`, one a seed, but for losses of Monte Carlo's own angle and sum: zero but for rounding."""
    curves = {loss: np.array([[step[loss] for step in run] for run in runs]) for loss in runs[0][0]}
    return {loss: curve for loss, curve in curves.items() if curve.max() > 1e-3}


def table(curves: Mapping[str, Curves]) -> Iterator[str]:
    """Lines of Markdown: float32 at the end of the training, and how far the other forms are from it."""
    names = [name for name in curves if name != BASE]
    yield f"| phase | loss | {BASE} | between seeds | {' | '.join(names)} |"
    yield f"|---|---|---|---|{'---|' * len(names)}"
    for loss, curve in curves[BASE].items():
        base = curve[:, -_LAST:].mean(axis=1)
        limit = stats.t.ppf(0.975, len(base) - 1)  # standard errors
        cells = []
        for name in names:
            parted = 100 * (curves[name][loss][:, -_LAST:].mean(axis=1) - base) / base.mean()  # percent
            mean, error = parted.mean(), stats.sem(parted)
            cells.append(f"{mean:+.1f} ± {error:.1f} %, {'within' if abs(mean) < limit * error else 'beyond'}")
        yield f"| {' | '.join([*loss, f'{base.mean():.3g}', f'{base.std(ddof=1):.2g}', *cells])} |"
    yield (
        f"\nMeans of the last {_LAST} steps of {len(base)} seeds. Differences from {BASE} by seed, with standard "
        f"errors; within noise: under {limit:.1f} of these, which chance exceeds once in 20."
    )


def figure(curves: Mapping[str, Curves]) -> Figure:
    """Running means of every loss: over the seeds their mean as a line and, of float32, the whole range as a band."""
    phases = list(dict.fromkeys(phase for phase, _ in curves[BASE]))
    drawn = Figure(figsize=(12, 10), layout="constrained")
    grid = drawn.subplots(len(phases), len(_AXES), sharex=True)
    for (row, phase), (column, name) in itertools.product(enumerate(phases), enumerate(_AXES)):
        axes = grid[row, column]
        if (phase, name) not in curves[BASE]:
            axes.set_axis_off()
            continue
        for colour, (form, found) in zip(_COLOURS, curves.items(), strict=True):
            smooth = np.apply_along_axis(np.convolve, 1, found[phase, name], np.ones(_SMOOTHED) / _SMOOTHED, "valid")
            steps = np.arange(smooth.shape[1]) + _SMOOTHED
            axes.plot(steps, smooth.mean(axis=0), color=colour, label=form)
            if form == BASE:
                axes.fill_between(steps, smooth.min(axis=0), smooth.max(axis=0), color=colour, alpha=0.2, lw=0)
        axes.set(title=phase.replace("_", " "), ylabel=_AXES[name], yscale="log" if name == "ecal" else "linear")
        axes.yaxis.set_minor_formatter(ScalarFormatter())
    for axes in grid[-1]:
        axes.set_xlabel(f"step (mean of {_SMOOTHED} up to it)")
    title = "lines: mean of the seeds; band: all seeds of float32"
    drawn.legend(*grid[0, 0].get_legend_handles_labels(), title=title, loc=(0.6, 0.85), frameon=False)
    return drawn


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--input", nargs="+", default=["data/geant4/*.h5"], metavar="GLOB")
    command.add_argument("--output", default="docs/precision.png", metavar="PNG", help="(default %(default)s)")
    command.add_argument("--seeds", type=int, default=5, metavar="N", help="runs of each form (default %(default)s)")
    command.add_argument("--quick", action="store_true", help="the first file alone, two seeds, 20 steps")
    options = command.parse_args()
    paths = [Path(str(name)) for name in storage.expand(options.input)][: 1 if options.quick else None]
    seeds, steps = (2, 20) if options.quick else (options.seeds, 200)
    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as place:
        dataset = Path(place) / "dataset"
        for path in paths:
            join(path, Path(place) / path.name)
        settings = Settings(Selection(rule=SplitRule.parse(["train=*"])))
        manifest = preprocess(discover([f"{place}/{path.name}" for path in paths]), dataset, settings)
        curves = {}
        for name, (precision, error) in FORMS.items():
            configs = [named_config("small", precision=precision, seed=seed) for seed in range(1, seeds + 1)]
            curves[name] = stacked([train(config, error, steps, dataset, manifest) for config in configs])
    print("\n".join(table(curves)))
    figure(curves).savefig(options.output, dpi=100)
    Image.open(options.output).convert("RGB").quantize(64).save(options.output, optimize=True)  # a third of the bytes


if __name__ == "__main__":
    run_command(main)
