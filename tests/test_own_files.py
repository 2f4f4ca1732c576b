"""Files of other programs stay as they are: a command that would replace such a file refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import refused, run
from showers import make_file

from calopipe.documents import require_own
from calopipe.errors import InputError
from calopipe.grade import load_grade
from calopipe.verdict import Comparison
from components import overview
from training import model_folder
from validation.report.page import html


def _preprocess(output: Path) -> None:
    run("--input", make_file(output.parent / "a.h5", events=20), "--output", output)


def _note(output: Path) -> None:
    overview.note(output, {}, output / "run.log")


_COMMANDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "dataset": (_preprocess, "manifest.json"),
    "training": (lambda output: model_folder.begin(output, "request", {}, overwrite=True), "training.json"),
    "model": (lambda output: model_folder.begin(output, "request", {}, overwrite=True), "card.json"),
    "verdict": (lambda output: Comparison(output, load_grade("gan"), {}).standing(), "verdict.json"),
    "report": (lambda output: Comparison(output, load_grade("gan"), {}).standing(), "report.html"),
    "run": (_note, "run.json"),
    "page of a run": (_note, "index.html"),
    "verdict of a run": (_note, "verdict.json"),
}


_MINE = (b'{"kind": "mine"}', b"[1, 2]", b"<html>mine</html>", b"", b"\xff\xfe", b"[" * 100_000)


@pytest.mark.parametrize("what", _COMMANDS)
def test_a_file_of_another_program_is_not_replaced(tmp_path: Path, what: str) -> None:
    command, name = _COMMANDS[what]
    path = tmp_path / "out" / name
    path.parent.mkdir()
    for content in _MINE:
        path.write_bytes(content)
        assert f"{path}: exists, and calopipe did not write it" in refused(path.parent, command=command)
        assert path.read_bytes() == content
        assert list(path.parent.iterdir()) == [path]
    path.unlink()
    command(path.parent)


def test_a_dataset_does_not_go_into_the_folder_of_a_model(tmp_path: Path) -> None:
    model_folder.begin(tmp_path / "m", "request", {}, overwrite=False)
    assert f"{tmp_path / 'm'}: holds training.json" in refused(tmp_path / "m", command=_preprocess)
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["training.json"]


def test_files_of_another_program_in_shards_keep_the_manifest_beside_them(tmp_path: Path) -> None:
    (tmp_path / "out/shards").mkdir(parents=True)
    for name in ("manifest.json", "shards/a.json"):
        (tmp_path / "out" / name).write_text('{"kind": "mine"}')
    assert "shards/a.json: exists, and calopipe did not write it" in refused(tmp_path / "out", command=_preprocess)


def test_documents_of_any_version_are_calopipes_and_the_pages_beside_them(tmp_path: Path) -> None:
    document, page = tmp_path / "a.json", tmp_path / "a.html"
    page.write_text(html("A page", ""))  # type: ignore[arg-type]
    require_own(document, "calopipe.verdict", page=page)
    page.write_text("<html>as earlier versions made it</html>")
    with pytest.raises(InputError, match=r"a\.html: exists, and calopipe did not write it"):
        require_own(document, "calopipe.verdict", page=page)
    document.write_text('{"kind": "calopipe.verdict", "schema_version": 999}')
    require_own(document, "calopipe.verdict", page=page)
    with pytest.raises(InputError, match=r"a\.json: exists, and calopipe did not write it"):
        require_own(document, "calopipe.run", page=page)
