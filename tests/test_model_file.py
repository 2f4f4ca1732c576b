"""A user's own model: where its file may run, what a model folder says of it, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from trainings import fit_layers, fit_small

from calopipe.errors import InputError
from training import __main__ as command
from training import configs, folder
from training.configs import CONFIGS, as_options, named_config
from training.models.source import ModelFile, offered

LAYERS = Path(__file__).with_name("layers.py")


@pytest.fixture(scope="module")
def trained(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset `ds`, and a model `m` of four steps."""
    place = tmp_path_factory.mktemp("layers")
    (place / "ds").symlink_to(dataset)
    fit_layers(place / "ds", place / "m", "--steps", "4")
    return place


def test_a_folder_needs_no_other_file_and_its_card_none(trained: Path, tmp_path: Path) -> None:
    """In a process in which no file has run: as the registry's current model, then as one that a command names."""
    assert (trained / "m/model.py").read_bytes() == LAYERS.read_bytes()
    assert "layers" not in CONFIGS  # the command before left nothing behind
    program = f"""
import sys
from pathlib import Path
from calopipe.errors import InputError
from training.__main__ import main
from training.folder import read_card
from training.loading import load
model = {str(trained / "m")!r}
card = read_card(Path(model))
print(card.config.model, card.config.to_json()["hidden"], card.geometry.shape)
try:
    load(Path(model))
except InputError as error:
    print(error)
main(["generate", "--model", model, *"--energy 150 --theta 90 --showers 3 --output made.h5".split()])
assert read_card(Path(model)).fingerprint() == card.fingerprint()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    card, refused, made = done.stdout.splitlines()
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
    with pytest.raises(InputError, match=r"holds a model of .* another --model-file or"):
        fit_small(trained / "ds", trained / "m", "--model-file", str(changed), "--config", "layers", *given)
    fit_small(trained / "ds", tmp_path / "m", "--model-file", str(changed), "--config", "layers", *given)
    before, after = (folder.read_card(place / "m") for place in (trained, tmp_path))
    assert before.weights == after.weights
    assert before.request != after.request
    assert before.fingerprint() != after.fingerprint()  # its showers may be others
    assert "model_file" in after.since(before.dataset["fingerprint"], before.config)


@pytest.mark.parametrize("statement", ["if ops.mean(view['energy_gev']) > 0", "for _ in view['energy_gev']"])
def test_a_choice_by_values_of_the_graph_is_refused_in_a_line(trained: Path, tmp_path: Path, statement: str) -> None:
    lines = LAYERS.read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if line.startswith("    def _losses")) + 1
    (tmp_path / "layers.py").write_text("\n".join([*lines[:number], f"        {statement}: pass", *lines[number:]]))
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
    ],
)
def test_what_is_no_model_is_refused_in_a_line(text: str | None, line: str, tmp_path: Path) -> None:
    second = (
        "@register('more')\n@dataclass(frozen=True, kw_only=True)\nclass More(LayersConfig):\n    pass\n"
        "CONFIGS['more'] = More(model='more', batch=1, epochs=1, learning_rate=0.1)\n"
    )
    place = tmp_path / "file.py"
    if text is not None:
        whole = text.replace("{layers}", LAYERS.read_text()).replace("{second}", second)
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
