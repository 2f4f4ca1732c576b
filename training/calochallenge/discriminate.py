"""CaloChallenge's classifiers, trained by the engine to tell generated showers from Monte Carlo's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import tensorflow as tf
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss, roc_auc_score

from calopipe import storage
from calopipe.documents import require_own, stands
from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.lock import alone
from calopipe.showers.calochallenge import CLASSIFIER
from calopipe.showers.cells import Array, Showers
from calopipe.showers.files import ShowerFile, open_all
from calopipe.showers.selection import Selection
from calopipe.showers.writer import shower_writer
from calopipe.storage import Location
from preprocessing.manifest import Manifest
from preprocessing.pipeline import preprocess
from preprocessing.reading import ordered_batches
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings
from training.fit import fit
from training.load_model import load_model
from training.models.classifier import LEVELS, ClassifierConfig
from training.models.classifier.model import Discriminator

# As published: for the training, for the choice of the epoch and the calibration, and for the result.
FRACTIONS = {"train": 0.6, "validation": 0.2, "test": 0.2}
_LEAST = 20  # showers of each set, at the least
_CLIPPED = 1e-6  # calibrated probabilities are kept so far from 0 and 1, as published
_BATCH = 1_000
_AT_ONCE = 200  # showers of each set in memory: 5 MB of dataset 2's


def discriminate(
    reference: Sequence[Location],
    candidate: Sequence[Location],
    output: Path,
    *,
    selection: Selection | None = None,
    levels: Sequence[str] = (),
    **settings: Any,
) -> dict[str, Any]:
    """Train a classifier of each of `levels` ("low", "high"; all that the cells allow) and write `output`, a JSON file.

    As many showers of `reference` (of its `selection`) as of `candidate` take part, in their order; the cut is zero.
    `settings` are those of `ClassifierConfig`; a batch is at most all showers of the training. AUC and JSD are measured
    on a fifth of the showers, which had no part in training, choice of epoch or calibration. JSD is the Jensen-Shannon
    divergence in bits that the calibrated classifier shows: 1 minus its cross-entropy. An earlier result of the same
    files and settings is kept. The work is done in a hidden folder beside `output`; a training that was stopped goes
    on there. InputError: files cannot be read or compared, or there are too few showers.
    """
    chosen = selection or Selection()
    references, candidates = open_all(reference, chosen), open_all(candidate, replace(chosen, split="all"))
    if references[0].geometry != candidates[0].geometry:
        raise InputError(
            f"{candidates[0].path}: of another detector than {references[0].path}; compare showers of one detector"
        )
    compared = {
        "reference": [file.sha256 for file in references],
        "candidate": [file.sha256 for file in candidates],
        "split": chosen.split,
    }
    asked_levels = levels or LEVELS[: 2 if references[0].geometry.rings else 1]
    configs = {level: ClassifierConfig(model=f"{level}-level-classifier", **settings) for level in asked_levels}
    for config in configs.values():
        config.check(references[0].geometry)
    require_own(output, CLASSIFIER.kind)
    storage.require_writable(output.parent)
    request = storage.fingerprint(
        [
            metadata.version("calopipe"), compared, chosen.rule.by_file, chosen.cut_gev, chosen.geometry,
            chosen.bad_event, {level: config.to_json() for level, config in configs.items()},
        ]
    )  # fmt: skip
    work = output.with_name(f".{output.name}.parts")
    if (document := CLASSIFIER.standing(output, request)) is not None:
        stands("classifiers stand", output)
    else:
        with alone(output.parent, f".{output.name}.lock"):
            showers = _merged(references, candidates, work, chosen, seed=next(iter(configs.values())).seed)
            made = {"inputs": compared, "showers": showers, "classifiers": _trained(work, configs), "request": request}
            document = CLASSIFIER.write(output, made)
    storage.discard(work)
    return document


def _trained(work: Path, configs: Mapping[str, ClassifierConfig]) -> dict[str, Any]:
    """Train a classifier of each level on the files in `work`; returns how good they are."""
    rule = SplitRule(tuple((split, f"{split}.h5") for split in FRACTIONS))
    inputs = discover([str(work / f"{split}.h5") for split in FRACTIONS])
    manifest = preprocess(inputs, work / "dataset", Settings(Selection(rule=rule, cut_gev=0.0)))
    classifiers = {}
    for level, stated in configs.items():
        config = replace(stated, batch=min(stated.batch, manifest.count("train")))
        fit(work / "dataset", work / level, config, overwrite=True)
        classifiers[level] = _judged(work / level, work / "dataset", manifest) | {"settings": config.to_json()}
    return classifiers


def _merged(
    references: Sequence[ShowerFile], candidates: Sequence[ShowerFile], work: Path, selection: Selection, *, seed: int
) -> int:
    """Write a file of each split, in which the sets alternate, Monte Carlo's first; returns the showers of each set."""
    masks = [file.chosen(selection)[0] for file in references]
    showers = min(sum(int(mask.sum()) for mask in masks), sum(file.events for file in candidates))
    if showers < _LEAST:
        raise InputError(f"--reference and --candidate share {showers} showers, a classifier needs {_LEAST} of each")
    counts = [int(showers * share) for share in list(FRACTIONS.values())[:-1]]
    ends = np.repeat(np.arange(len(FRACTIONS)), [*counts, showers - sum(counts)])
    parts = np.random.default_rng(seed).permuted(ends)  # the same for both sets: pairs of one energy stay together
    everything = [np.ones(file.events, np.bool_) for file in candidates]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(shower_writer(work / f"{split}.h5", references[0].geometry, {})) for split in FRACTIONS
        ]
        first, second = (islice(_ones(*chosen), showers) for chosen in ((references, masks), (candidates, everything)))
        pairs = zip(parts, first, second, strict=True)
        while batch := list(islice(pairs, _AT_ONCE)):
            for number, writer in enumerate(writers):
                if rows := [shower for part, *pair in batch if part == number for shower in pair]:
                    arrays = (np.concatenate([getattr(shower, name) for shower in rows]) for name in rows[0].arrays)
                    writer.write(Showers(*arrays))
    return showers


def _ones(files: Sequence[ShowerFile], masks: Sequence[Any]) -> Iterator[Showers]:
    """The chosen showers of files, one at a time."""
    for file, mask in zip(files, masks, strict=True):
        for batch in file.selected(mask):
            yield from (batch[row : row + 1] for row in range(len(batch)))


def _judged(model: Path, dataset: Path, manifest: Manifest) -> dict[str, Any]:
    """AUC and JSD of the trained model on the test split, calibrated on the validation split by isotonic regression."""
    card, trained = load_model(model)
    classifier = cast(Discriminator, trained)

    def answers(split: str) -> tuple[Array, Array]:
        batches = ordered_batches(dataset, manifest, split, batch=_BATCH, decode=classifier.decode)
        pairs = [(batch["monte_carlo"].numpy(), tf.sigmoid(classifier.answer(batch)).numpy()) for batch in batches]
        labels, probabilities = (np.concatenate(column).astype(np.float64) for column in zip(*pairs, strict=True))
        return labels, probabilities

    labels, probabilities = answers("validation")
    calibration = IsotonicRegression(y_min=_CLIPPED, y_max=1 - _CLIPPED, out_of_bounds="clip")
    calibration.fit(probabilities, labels)
    labels, probabilities = answers("test")
    return {
        "auc": float(roc_auc_score(labels, probabilities)),
        "jsd": 1 - float(log_loss(labels, calibration.predict(probabilities))) / np.log(2),
        "tested": len(labels),
        "chosen_step": card.trained["chosen_step"],
    }
