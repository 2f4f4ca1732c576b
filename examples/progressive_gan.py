"""A progressive GAN (Karras et al., arXiv 1710.10196) in one file; its images are frames of a flow.

    python -m preprocessing --input 'data/vortex/*.h5' --output runs/frames
    python -m training fit --model-file examples/progressive_gan.py --dataset runs/frames --output runs/images

Both networks grow from 16 x 4 to 128 x 32 cells, and each resolution fades in. As published: learning rates are
equalised, the generator normalises each cell over its channels, the discriminator sees the spread of its batch, and a
moving average of the generator is kept. Not as published: the loss is the logistic loss with the penalty R1 (Mescheder
et al., arXiv 1801.04406) in place of WGAN-GP. This loss converges where data lie on a manifold, with one update of the
discriminator for each update of the generator. It needs no images between real and made ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from matplotlib.figure import Figure

from calopipe.errors import InputError
from calopipe.flow.grid import Grid
from calopipe.flow.mechanics import vorticity
from calopipe.options import setting
from preprocessing.manifest import Manifest
from preprocessing.reading import decode_pairs
from training.models.base import Array, Batch, Judge, Losses, Model, Phase, Rows, Tensor, ValidRange
from training.models.config import CONFIGS, FitConfig, register
from training.models.flow import INFLOW, mirrored
from training.models.randomness import Draws

UNIT = 0.5  # in U, about the spread of velocities behind an obstacle; an image is (velocity - inflow) / UNIT
LATENT = 64
FILTERS = (64, 48, 24, 12)  # of each resolution, the coarsest first; the last also of finer resolutions
IMAGES = 8  # how many are made for each frame of the validation split
PATCH, PATCHES, DIRECTIONS, QUANTILES, DATA = 7, 64, 128, 256, 512  # of the sliced Wasserstein distance


@register("progressive-gan")
@dataclass(frozen=True, kw_only=True)
class ProgressiveConfig(FitConfig):
    """Each resolution but the last lasts `growth_steps`. Each but the coarsest fades in over `growth_steps` / 2."""

    domain: ClassVar[type[Grid]] = Grid
    least_evaluated: ClassVar[int] = 32
    levels: int = setting(4, help="resolutions of a growing GAN, each twice the one before", least=1)
    growth_steps: int = setting(700, help="steps of each resolution but the last", least=2)
    penalty: float = setting(0.5, help="weight of R1, the squared gradient at real images", least=0)

    def check_shape(self, geometry: Grid) -> None:
        if any(side % 2 ** (self.levels - 1) for side in geometry.shape):
            raise InputError(f"frames of {geometry.shape} cells are not halved {self.levels - 1} times; lower --levels")

    def build(self, geometry: Grid) -> ProgressiveGAN:
        return ProgressiveGAN(geometry, self)


CONFIGS["progressive"] = ProgressiveConfig(
    model="progressive-gan", batch=8, epochs=100, learning_rate=2e-3, average=0.998, evaluation_steps=200
)


class Equalised(keras.layers.Layer):
    """A convolution whose weights are of order one. They are scaled by He's constant when it is called."""

    def __init__(self, inputs: int, filters: int, size: int, gain: float = math.sqrt(2)) -> None:
        super().__init__()
        self._scale = gain / math.sqrt(size * size * inputs)
        self.kernel = self.add_weight((size, size, inputs, filters), keras.initializers.RandomNormal(0.0, 1.0))
        self.bias = self.add_weight((filters,), "zeros")

    def call(self, images: Tensor) -> Tensor:
        return ops.conv(images, self.kernel * self._scale, padding="same") + self.bias


class Generator(keras.Model):
    """Makes images of a level from latent vectors (N, LATENT). Keeps the last step, and `_quantiles` of the data."""

    def __init__(self, coarsest: tuple[int, int], filters: list[int]) -> None:
        super().__init__(name="generator")
        self._start = (-1, *coarsest, filters[0])
        self.first = Equalised(LATENT, math.prod(coarsest) * filters[0], 1, math.sqrt(2) / 4)
        self.blocks = [[Equalised(a, b, 3), Equalised(b, b, 3)] for a, b in pairwise([filters[0], *filters])]
        self.images = [Equalised(width, 2, 1, 1.0) for width in filters]
        self.step = self.add_weight((), "zeros", dtype="int64", trainable=False, name="step")
        self.data = keras.layers.Layer(trainable=False)
        self.quantiles = self.data.add_weight((len(filters), QUANTILES, DIRECTIONS), "zeros", trainable=False)
        self.built = True

    def call(self, latent: Tensor, level: int, faded: Tensor) -> Tensor:
        """Images (N, x, y, 2) of `level`, which has faded in by the share `faded`."""
        before = flow = ops.leaky_relu(ops.reshape(self.first(_normalised(latent)[:, None, None]), self._start))
        for number in range(level + 1):
            before, flow = flow, _finer(flow) if number else flow
            for convolution in self.blocks[number]:
                flow = _normalised(ops.leaky_relu(convolution(flow)))
        image = self.images[level](flow)
        return _between(_finer(self.images[level - 1](before)), image, faded) if level else image


class Discriminator(keras.Model):
    """Returns the logits (N,) that images of a level are real."""

    def __init__(self, coarsest: tuple[int, int], filters: list[int]) -> None:
        super().__init__(name="discriminator")
        self.images = [Equalised(2, width, 1) for width in filters]
        self.blocks = [[Equalised(b, b, 3), Equalised(b, a, 3)] for a, b in pairwise(filters)]
        self.last = [Equalised(filters[0] + 1, filters[0], 3), Equalised(filters[0] * math.prod(coarsest), 1, 1, 1.0)]
        self.built = True

    def call(self, images: Tensor, level: int, faded: Tensor) -> Tensor:
        flow = ops.leaky_relu(self.images[level](images))
        for number in range(level, 0, -1):
            for convolution in self.blocks[number - 1]:
                flow = ops.leaky_relu(convolution(flow))
            flow = _coarser(flow)
            if number == level:
                flow = _between(ops.leaky_relu(self.images[level - 1](_coarser(images))), flow, faded)
        spread = ops.mean(ops.sqrt(ops.var(flow, 0) + 1e-8))
        flow = ops.leaky_relu(self.last[0](ops.concatenate([flow, ops.ones_like(flow[..., :1]) * spread], -1)))
        return self.last[1](ops.reshape(flow, (ops.shape(flow)[0], 1, 1, -1)))[:, 0, 0, 0]


class ProgressiveGAN(Model):
    """One graph holds all levels. A step computes only the branch of the level that the training has reached."""

    averaged = ("generator",)
    weights: Mapping[str, float] = {"divergence": 1.0}

    def __init__(self, grid: Grid, config: ProgressiveConfig) -> None:
        self._levels, self._steps, self._shape = config.levels, config.growth_steps, grid.shape
        coarsest = tuple(side // 2 ** (config.levels - 1) for side in grid.shape)
        filters = [FILTERS[min(level, len(FILTERS) - 1)] for level in range(config.levels)]
        self.generator, self.discriminator = Generator(coarsest, filters), Discriminator(coarsest, filters)
        self.networks = {"generator": self.generator, "discriminator": self.discriminator}
        answers = {"real": 1.0, "fake": 1.0, "penalty": config.penalty}
        self.phases = (
            Phase("discriminator", "discriminator", self._discriminate, answers),
            Phase("generator", "generator", self._deceive, {"deception": 1.0, "growth": 0.0}),
        )

    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:  # noqa: ARG002
        return keras.optimizers.Adam(learning_rate, beta_1=0.0, beta_2=0.99, epsilon=1e-8)

    def decode(self, records: Tensor, manifest: Manifest) -> Batch:
        return decode_pairs(records, manifest)

    def adapt(self, batches: Iterable[Batch], manifest: Manifest) -> None:
        frames = np.concatenate([np.asarray(batch["now"])[:: -(-manifest.count("train") // DATA)] for batch in batches])
        frames = np.concatenate([frames, frames[:, :, ::-1] * [1, -1]])  # as `view` does
        self.generator.quantiles.assign(np.stack(_quantiles(frames, self._levels)))

    def view(self, batch: Batch, draws: Draws) -> Batch:
        flow = mirrored(batch, draws.uniform("mirror", batch["solid"].shape[:1]) < 0.5)  # half are upside down
        return {"image": (flow["now"] - ops.convert_to_tensor(INFLOW)) / UNIT}

    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Any]:
        """The rms divergence of images, in U a cell, and these images, several for each frame. No loss trains it."""
        frames = ops.shape(batch["now"])[0]
        u, v = ops.unstack(self._velocity(draws.normal("latent", (IMAGES * frames, LATENT))), axis=-1)
        divergence = (u[:, 2:, 1:-1] - u[:, :-2, 1:-1] + v[:, 1:-1, 2:] - v[:, 1:-1, :-2]) / 2
        squares = ops.reshape(ops.square(divergence), (frames, -1))
        return {"divergence": ops.sqrt(ops.mean(squares, 1))}, ops.stack([u, v], -1)

    def judge(self, showers: int, geometry: Grid, workers: int = 1) -> ImageJudge:  # noqa: ARG002
        return ImageJudge(geometry, self.generator.quantiles.numpy())

    def score(self, losses: Mapping[str, float], found: Mapping[str, Any], showers: int) -> float | None:  # noqa: ARG002
        return float(found["swd"]["mean"])

    def serving(self, valid: ValidRange) -> Any:  # noqa: ARG002  it is given no labels
        @tf.function(input_signature=[tf.TensorSpec([None, LATENT], tf.float32)], autograph=False)
        def images(latent: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"velocity": self._velocity(latent)}

        return images

    def _velocity(self, latent: Tensor) -> Tensor:
        """Frames (N, x, y, 2) in U from latent vectors: of the level that is reached, in the cells of the finest."""

        def made(**at: Any) -> Tensor:
            image = self.generator(latent, **at)
            for _ in range(self._levels - 1 - at["level"]):
                image = _finer(image)
            return image * UNIT + ops.convert_to_tensor(INFLOW)

        return tf.ensure_shape(self._at_level(self._growth(self.generator.step.value), made), [None, *self._shape, 2])

    def _growth(self, step: Tensor) -> Tensor:
        """How many levels have faded in beyond the coarsest; the level that fades in counts by its share."""
        starts = np.arange(1, self._levels, dtype=np.float32) * self._steps
        return ops.sum(ops.clip((ops.cast(step, "float32") - starts) / (self._steps / 2), 0.0, 1.0))

    def _at_level(self, growth: Tensor, branch: Callable[..., Any]) -> Any:
        """What `branch(level=, faded=)` returns. `growth` says which level is reached, and how far it has faded in."""
        reached = tf.cast(tf.math.ceil(growth), tf.int32)
        faded = growth - tf.cast(tf.maximum(reached, 1) - 1, tf.float32)
        return tf.switch_case(reached, [partial(branch, level=number, faded=faded) for number in range(self._levels)])

    def _discriminate(self, view: Batch, draws: Draws) -> Losses:
        latent = draws.normal("latent", (view["image"].shape[0], LATENT))

        def losses(**at: Any) -> Losses:
            real = view["image"]
            for _ in range(self._levels - 1 - at["level"]):
                real = _coarser(real)
            real = _between(_finer(_coarser(real)), real, at["faded"]) if at["level"] else real
            fake = ops.stop_gradient(self.generator(latent, **at))
            with tf.GradientTape() as tape:
                tape.watch(real)
                answer = self.discriminator(real, **at)
            return {
                "real": ops.softplus(-answer),
                "fake": ops.softplus(self.discriminator(fake, **at)),
                "penalty": ops.sum(ops.square(tape.gradient(answer, real)), (1, 2, 3)) / 2,
            }

        return self._at_level(self._growth(view["step"]), losses)

    def _deceive(self, view: Batch, draws: Draws) -> Losses:
        latent, growth = draws.normal("latent", (view["image"].shape[0], LATENT)), self._growth(view["step"])
        self.generator.step.assign(view["step"])

        answer = self._at_level(growth, lambda **at: self.discriminator(self.generator(latent, **at), **at))
        return {"deception": ops.softplus(-answer), "growth": ops.zeros_like(answer) + growth}


class ImageJudge(Judge):
    """The sliced Wasserstein distance to the train split: of the images, and of the real frames beside them."""

    def __init__(self, grid: Grid, data: Array) -> None:
        self._grid, self._data = grid, data

    def add(self, batch: Batch, made: Any) -> Rows:
        real, images = np.asarray(batch["now"]), np.asarray(made)
        self._shown = np.concatenate([real[:2], images[:6]])
        return np.hstack([real.reshape(len(real), -1), images.reshape(len(real), -1)]).astype(np.float64)

    def found(self, rows: Rows) -> dict[str, Any]:
        """Distances times 1000, by level, coarsest first, and their mean: `swd`, and of the frames `swd_of_frames`."""
        frames = rows.reshape(len(rows), 1 + IMAGES, *self._grid.shape, 2)
        sets = {"swd": frames[:, 1:].reshape(-1, *frames.shape[2:]), "swd_of_frames": frames[:, 0]}
        levels = len(self._data)
        names = ["x".join(str(side >> finer) for side in self._grid.shape) for finer in reversed(range(levels))]
        findings = {}
        for name, images in sets.items():
            distances = 1e3 * np.abs(np.stack(_quantiles(images, levels)) - self._data).mean((1, 2))
            findings[name] = dict(zip([*names, "mean"], [*distances.tolist(), float(distances.mean())], strict=True))
        return findings

    def figures(self) -> Mapping[str, Figure]:
        figure = Figure(figsize=(12, 7), dpi=80, layout="constrained")
        for number, (axis, frame) in enumerate(zip(figure.subplots(4, 2).flat, self._shown, strict=False)):
            axis.imshow(vorticity(frame[None], self._grid.cell_d)[0].T, origin="lower", cmap="RdBu_r", vmin=-4, vmax=4)
            axis.set_title(f"{'model' if number > 1 else 'solver'}: vorticity [U/D]", loc="left", fontsize=8)
        return {"images": figure}


def _quantiles(frames: Array, levels: int) -> list[Array]:
    """Quantiles (QUANTILES, DIRECTIONS) of projected patches of the `frames` (N, x, y, 2) by level, coarsest first.

    The levels are a Laplacian pyramid, of means of 2 x 2 cells. Each channel of the patches of a level has mean 0 and
    spread 1, as published, so the distance compares shapes. Places of patches and directions are the same for all sets.
    """
    rng, quantiles, rest = np.random.default_rng(1), [], frames
    for level in range(levels - 1, -1, -1):
        coarse = rest.reshape(len(rest), rest.shape[1] // 2, 2, -1, 2, 2).mean((2, 4)) if level else 0 * rest
        band = rest - coarse.repeat(2, 1).repeat(2, 2) if level else rest
        size = [min(PATCH, side) for side in band.shape[1:3]]
        x, y = (rng.integers(0, side - own + 1, PATCHES) for side, own in zip(band.shape[1:3], size, strict=True))
        patches = np.concatenate([band[:, i : i + size[0], j : j + size[1]] for i, j in zip(x, y, strict=True)])
        patches = (patches - patches.mean((0, 1, 2))) / (patches.std((0, 1, 2)) + 1e-8)
        directions = rng.normal(size=(math.prod(patches.shape[1:]), DIRECTIONS))
        projected = patches.reshape(len(patches), -1) @ (directions / np.linalg.norm(directions, axis=0))
        quantiles.append(np.quantile(projected, (np.arange(QUANTILES) + 0.5) / QUANTILES, axis=0))
        rest = coarse
    return quantiles[::-1]


def _normalised(values: Tensor) -> Tensor:
    return values * ops.rsqrt(ops.mean(ops.square(values), -1, keepdims=True) + 1e-8)


def _between(old: Tensor, new: Tensor, share: Tensor) -> Tensor:
    return old + (new - old) * share


def _finer(images: Tensor) -> Tensor:
    return ops.repeat(ops.repeat(images, 2, 1), 2, 2)


def _coarser(images: Tensor) -> Tensor:
    return ops.average_pool(images, 2)
