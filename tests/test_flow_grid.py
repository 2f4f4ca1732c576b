"""The grid of a flow, and what a dataset of any field has in common."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calopipe.errors import InputError
from calopipe.flow.grid import Grid
from calopipe.showers.cells import REFERENCE_GEOMETRY
from preprocessing.flow.manifest import FlowManifest
from preprocessing.manifest import BadEvent, BadFile, Shard, Source
from training.configs import CONFIGS

GRID = Grid((128, 32), cell_d=0.25, interval_d=0.3)


def manifest() -> FlowManifest:
    return FlowManifest(
        fingerprint="f",
        request="r",
        settings={"split_rule": {"by_file": [["test", "b*"]]}},
        geometry=GRID,
        events={"read": 9, "written": 7, "repeated": 0, "dropped": {"bad_file": 2}},
        inputs=(Source("a.h5", "0" * 64, 7),),
        bad_files=(BadFile("b.h5", "cut off"),),
        bad_events=(BadEvent("a.h5", 3, "nan"),),
        shards=(Shard("shards/a", "train", 7, 100, "1" * 64),),
        reynolds=(60.0, 200.0),
    )


def test_a_grid_and_its_manifest_come_back_from_json() -> None:
    assert Grid.from_json(GRID.to_json()) == GRID
    document = manifest().to_json()
    assert (document["kind"], document["splits"]["train"]) == ("calopipe.flow.dataset", 7)
    assert FlowManifest.from_json(document) == manifest()
    assert manifest().summary() == "7 pairs of frames (train 7, validation 0, test 0); dropped: 2 bad_file"
    assert manifest().split_files == [["test", "b*"]]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, None),
        ({"cell_d": 0.25 * (1 + 1e-8)}, None),
        ({"cell_d": 0.25 * (1 + 3e-6)}, ("cell_d", "0.25", "0.250001")),
        ({"shape": (64, 32)}, ("shape", "(128, 32)", "(64, 32)")),
        ({"cell_d": 0.5}, ("cell_d", "0.25", "0.5")),
        ({"interval_d": 0.6}, ("interval_d", "0.3", "0.6")),
    ],
)
def test_grids_differ_in_what_is_named(changed: dict[str, object], expected: object) -> None:
    assert GRID.difference(replace(GRID, **changed)) == expected


def test_impossible_grids_are_refused() -> None:
    with pytest.raises(InputError, match=r"grid: cell_d must be a positive number, found nan"):
        replace(GRID, cell_d=float("nan"))
    with pytest.raises(InputError, match=r"grid: shape must be two positive counts of cells, found \(128, 0\)"):
        replace(GRID, shape=(128, 0))
    for changed in ({"interval_d": 0.0}, {"cell_d": -1.0}, {"cell_d": float("inf")}, {"shape": (128, 32, 1)}):
        with pytest.raises(InputError, match=next(iter(changed))):
            replace(GRID, **changed)
    assert replace(GRID, shape=(128, 1)).cells == 128
    tiny = replace(GRID, cell_d=1e-9)
    assert tiny.difference(replace(tiny, cell_d=2e-9)) == ("cell_d", "1e-09", "2e-09")


def test_a_model_takes_datasets_of_its_own_field() -> None:
    CONFIGS["fast"].check(REFERENCE_GEOMETRY)
    with pytest.raises(InputError, match="the dataset holds pairs of frames, the model autoregressive is for showers"):
        CONFIGS["fast"].check(GRID)
