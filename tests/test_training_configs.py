"""Training configs: what a run may change, the command line that makes them, and configs of a user's own file."""

from __future__ import annotations

import shutil
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from servers import said
from trainings import fit_layers, fit_small

from calopipe.errors import InputError
from training import __main__ as command
from training import configs, model_folder
from training.configs import CONFIGS, DEFAULT, FitConfig, RunOptions, as_options, named_config, with_settings
from training.models.source import ModelFile, offered


def test_settings_take_the_place_of_the_configs_own() -> None:
    changed = with_settings(CONFIGS[DEFAULT], {"average": 0.999, "batch": 8.0, "precision": "bfloat16", "patience": 2})
    assert (changed.average, changed.batch, changed.precision, changed.patience) == (0.999, 8, "bfloat16", 2)
    assert type(changed.batch) is int
    assert with_settings(changed, {}) == changed
    assert type(with_settings(changed, {"average": 0}).average) is float  # so that it equals itself read from a card


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"avrage": 0.9}, "training setting 'avrage' is unknown; known: batch, learning_rate"),
        *(
            ({name: 3}, f"training setting '{name}' is unknown")
            for name in ("model", "epochs", "steps", "seed", "momentum")
        ),
        ({"batch": 2.5}, "training setting batch is 2.5, expected a whole number"),
        ({"batch": True}, "training setting batch is True, expected a whole number"),
        ({"average": "much"}, "training setting average is 'much', expected a number"),
        ({"precision": 16}, "training setting precision is 16, expected a name"),
        ({"precision": "float8"}, "--precision 'float8' is unknown"),
        ({"average": float("nan")}, "training setting average is nan, expected a number"),
        ({"learning_rate": 0.0}, "--learning-rate"),
        ({"width": -1}, "--width is -1"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        with_settings(CONFIGS[DEFAULT], settings)


def test_a_setting_is_of_its_model_and_a_name_of_a_known_strategy() -> None:
    with pytest.raises(InputError, match="--width is not for the model 3dgan-small; leave it out"):
        named_config("small", width=16)
    with pytest.raises(InputError, match="--strategy 'magic' is unknown; known: one-device, mirrored"):
        named_config(DEFAULT, strategy="magic")


@pytest.mark.parametrize(("name", "own"), [("small", {"momentum": 0.5}), ("fast", {"width": 16})])
def test_options_make_the_config_again(name: str, own: dict[str, Any]) -> None:
    """By the command's parser, for values that differ from the named config's wherever they may."""
    values = {"batch": 3, "learning_rate": 0.25, "precision": "tf32", "schedule": "cosine", "warm_up_epochs": 0.5}
    values |= {"linear_scaling": 32, "average": 0.75, "patience": 4, "evaluation_steps": 2, "evaluation_share": 0.5}
    values |= own
    others = {"epochs": 7, "steps": 5, "strategy": "multi-worker", "seed": 9}
    assert {*values, *others} == {field.name for field in fields(CONFIGS[name])} - {"model"}
    config = with_settings(named_config(name, **others), values)
    arguments = ["fit", "--dataset", "d", "--output", "o", *as_options(config, name)]
    options = command.parser().parse_args(arguments)
    given = {setting: getattr(options, setting) for setting in configs.all_settings()}
    assert named_config(options.config, **given) == config
    assert as_options(CONFIGS[DEFAULT], DEFAULT) == ["--config", DEFAULT]


def test_the_help_of_a_training_names_the_models_of_a_setting() -> None:
    groups = {models: [*settings] for models, settings in configs.settings_by_models().items()}
    assert "seed" in groups[""]
    assert groups.items() >= {
        "autoregressive": ["width"], "3dgan, 3dgan-small": ["momentum"],
        "pix2pix, pix2pix-small": ["l1_weight", "noise"],
    }.items()  # fmt: skip
    assert "hidden" not in configs.all_settings()  # of the classifier, which another command trains


def test_configs_of_earlier_cards_are_read() -> None:
    """They hold the settings of all models, and lack settings that came later."""
    document = {
        "model": "3dgan-small", "batch": 4, "epochs": 3, "learning_rate": 1e-3, "momentum": 0.9, "width": 0, "seed": 7,
    }  # fmt: skip
    assert FitConfig.from_json(document) == named_config("small", batch=4, epochs=3, seed=7)
    document |= {"model": "autoregressive", "momentum": 0.0, "width": 8, "average": 0.5}
    found = FitConfig.from_json(document)
    assert (found, found.to_json()["width"]) == (FitConfig.from_json(found.to_json()), 8)
    with pytest.raises(InputError, match="the kind of model 'flow' is unknown; known: "):
        FitConfig.from_json(document | {"model": "flow"})


def test_epochs_that_are_given_replace_the_steps_of_a_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIGS, "stepped", named_config("small", steps=50))
    assert (named_config("stepped").steps, named_config("stepped", seed=3).steps) == (50, 50)
    assert (named_config("stepped", epochs=4).epochs, named_config("stepped", epochs=4).steps) == (4, 0)
    assert named_config("stepped", epochs=4, steps=9).steps == 9


def test_options_of_a_run_that_cannot_be() -> None:
    with pytest.raises(InputError, match="--checkpoint-seconds is 0"):
        RunOptions(checkpoint_seconds=0.0)


LAYERS = Path(__file__).with_name("layers.py")


@pytest.fixture(scope="module")
def trained(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset `ds`, and a model `m` of four steps."""
    place = tmp_path_factory.mktemp("layers")
    (place / "ds").symlink_to(dataset)
    fit_layers(place / "ds", place / "m", "--steps", "4")
    return place


def test_a_folder_needs_no_other_file_and_its_card_none(trained: Path, tmp_path: Path) -> None:
    """In a process in which no user's file has run: the registry's current model, then a model that a command names."""
    assert (trained / "m/model.py").read_bytes() == LAYERS.read_bytes()
    assert "layers" not in CONFIGS  # the command before left nothing behind
    program = f"""
import sys
from pathlib import Path
from calopipe.errors import InputError
from training.__main__ import main
from training.model_folder import read_card
from training.load_model import load_model
model = {str(trained / "m")!r}
card = read_card(Path(model))
print(card.config.model, card.config.to_json()["hidden"], card.geometry.shape)
try:
    load_model(Path(model))
except InputError as error:
    print(error)
main(["generate", "--model", model, *"--energy 150 --theta 90 --showers 3 --output made.h5".split()])
assert read_card(Path(model)).fingerprint() == card.fingerprint()
"""
    card, refused, made = said(sys.executable, "-c", program, cwd=tmp_path).splitlines()
    assert card == "layers 16 (17, 17, 5)"
    assert "the model layers is stated by a user's file, of SHA-256" in refused
    assert made == "3 showers: made.h5"


def test_an_altered_file_in_a_folder_does_not_run(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "m", tmp_path / "m")
    (tmp_path / "m/model.py").write_text("raise SystemExit(99)")
    with pytest.raises(InputError, match=r"model\.py: not the file that the model was trained with"):
        command.main(["export", "--model", str(tmp_path / "m"), "--output", str(tmp_path / "saved")])


def test_a_changed_file_is_another_training(trained: Path, tmp_path: Path) -> None:
    changed = tmp_path / "layers.py"
    changed.write_text(LAYERS.read_text() + "# a remark\n")
    given = ("--epochs", "2", "--steps", "4", "--batch", "8")
    with pytest.raises(InputError, match=r"holds another model: .*another --model-file"):
        fit_small(trained / "ds", trained / "m", "--model-file", str(changed), "--config", "layers", *given)
    fit_small(trained / "ds", tmp_path / "m", "--model-file", str(changed), "--config", "layers", *given)
    before, after = (model_folder.read_card(place / "m") for place in (trained, tmp_path))
    assert before.weights == after.weights
    assert before.request != after.request
    assert before.fingerprint() != after.fingerprint()  # its showers may be others
    (changed_file,) = after.changes(before.dataset["fingerprint"], before.config)
    assert changed_file == "another --model-file"


def test_a_choice_by_values_of_the_graph_is_refused_in_a_line(trained: Path, tmp_path: Path) -> None:
    lines = LAYERS.read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if line.startswith("    def _losses")) + 1
    lines.insert(number, "        if ops.mean(view['energy_gev']) > 0: pass")
    (tmp_path / "layers.py").write_text("\n".join(lines))
    given = ("--model-file", str(tmp_path / "layers.py"), "--config", "layers", "--batch", "8")
    with pytest.raises(InputError, match=rf"layers\.py:{number + 1}: an `if` or a loop over values of the graph; use"):
        fit_small(trained / "ds", tmp_path / "m", *given)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "no such file"),
        ("x = 1\n", "file.py: states no model"),
        ("x = 1\ny = (\n", "file.py:2: '\\(' was never closed"),
        ("import os\nimport nothing_of_this_name\n", "file.py:2: ModuleNotFoundError: No module named"),
        ("{layers}CONFIGS['fast'] = CONFIGS['layers']\n", "file.py: a config called fast is known already"),
        ("{layers}register('autoregressive')(LayersConfig)\n", r"file.py:\d+: a model called autoregressive is known"),
        ("{layers}{second}", "file.py: states 2 models, layers and more"),
        ("\xe9", "not a text in UTF-8"),
        ("{taken}", r"--model-file: .*--devices.*; give the setting another name"),
    ],
)
def test_what_is_no_model_is_refused_in_a_line(text: str | None, line: str, tmp_path: Path) -> None:
    second = (
        "@register('more')\n@dataclass(frozen=True, kw_only=True)\nclass More(LayersConfig):\n    pass\n"
        "CONFIGS['more'] = More(model='more', batch=1, epochs=1, learning_rate=0.1)\n"
    )
    place = tmp_path / "file.py"
    if text is not None:
        taken = LAYERS.read_text().replace("hidden", "devices")
        whole = text.replace("{layers}", LAYERS.read_text()).replace("{second}", second).replace("{taken}", taken)
        place.write_bytes(whole.encode("latin-1"))
    for _ in range(2):  # a file that failed has left nothing behind
        with pytest.raises(InputError, match=line):
            command.main(["estimate", "--model-file", str(place), "--showers", "100", "--devices", "v100"])


@pytest.mark.parametrize("before", ["#", "##"])  # the bytes that are read end within a letter, or after one
def test_a_file_that_is_too_long_does_not_run_cut_off(before: str, tmp_path: Path) -> None:
    place = tmp_path / "long.py"
    place.write_text(before + "\u00e9" * 2**18, encoding="utf-8")
    with pytest.raises(InputError, match=r"long\.py: more than 256 KiB; a model takes a few"):
        ModelFile.read(place)


def test_a_setting_may_be_a_flag_and_its_help_hold_a_percent_sign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = LAYERS.read_text()
    assert text.count("    hidden: int") == 1
    flag = '    flag: bool = setting(False, help="of 50 % of the cells")\n'
    place = tmp_path / "file.py"
    place.write_text(text.replace("    hidden: int", flag + "    hidden: int"))
    with pytest.raises(SystemExit, match="0"):
        command.main(["fit", "--model-file", str(place), "--help"])
    assert "of 50 % of the cells" in " ".join(capsys.readouterr().out.split())
    with offered(ModelFile.read(place)):
        config = with_settings(named_config("layers"), {"flag": True})
        assert as_options(config, "layers")[-1] == "--flag"
        CONFIGS["on"] = config
        assert as_options(with_settings(config, {"flag": False}), "on")[-1] == "--no-flag"
        with pytest.raises(InputError, match="training setting flag is 1, expected true or false"):
            with_settings(config, {"flag": 1})


def test_only_the_configs_of_the_file_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    file = ModelFile.read(LAYERS)
    with offered(file):
        with pytest.raises(InputError, match="--config 'fast' is unknown; known: layers"):
            named_config("fast")
        config = named_config("layers", hidden=3)
        changed = ModelFile("changed.py", file.text + "# changed").run()  # as of a folder beside the file of now
        assert changed["layers"].model_file != config.model_file
        assert as_options(config, "layers") == ["--model-file", str(LAYERS), "--config", "layers", "--hidden", "3"]
        monkeypatch.setattr(configs, "address", lambda path: f"gs://runs/{path.name}")  # as of a file in a mirror
        assert as_options(config, "layers")[:2] == ["--model-file", "gs://runs/layers.py"]
    stored = ModelFile("gs://runs/layers.py", file.text + "# in a bucket")
    with offered(stored):
        assert as_options(CONFIGS["layers"], "layers") == ["--model-file", stored.place, "--config", "layers"]
    assert ModelFile.unpacked(file.packed()).text == file.text
    assert "{{" not in file.packed()
    with pytest.raises(InputError, match="is no packed file"):
        ModelFile.unpacked("layers.py:x")
