"""A user's own model: one file of Python that states it, and when the file runs.

Such a file runs with all rights of the process. So it runs only where the user hands it over: with `--model-file`, or
in a folder on this machine's disk that a command names as its model (`training.model_folder.model_on_disk`). Other
people may have put the file beside the registry's current model, or into a folder on gs://: it does not run when such a
model is read. The cards of these models are read without it (`training.models.config.UnreadConfig`). A file that is
handed over runs for all models that it made, wherever they are: a model knows its file by the file's SHA-256.
"""

from __future__ import annotations

import base64
import hashlib
import linecache
import sys
import traceback
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType

from calopipe import storage
from calopipe.errors import InputError
from calopipe.mirror import address
from calopipe.storage import Location
from training.models.config import CONFIGS, FitConfig, stating

NAME = "model.py"  # the name of the file in the folder of a model that it made
_MOST_BYTES, _MOST_PACKED = 2**18, 2**16  # packed, it is part of a step's argument, for which Linux allows 128 KiB


@dataclass(frozen=True)
class ModelFile:
    """The `text` of a file that states a model, as it was at `place`."""

    place: str
    text: str

    @classmethod
    def read(cls, place: Location) -> ModelFile:
        """The file at `place`. InputError: it is missing, too long, or not text in UTF-8."""
        try:
            with place.open("rb") as stream:
                content = stream.read(_MOST_BYTES + 1)
        except (FileNotFoundError, IsADirectoryError):
            raise InputError(f"--model-file {place}: no such file; give one of Python that states a model") from None
        if len(content) > _MOST_BYTES:
            raise InputError(f"--model-file {place}: more than {_MOST_BYTES // 1024} KiB; a model takes a few")
        try:
            return cls(str(place), content.decode())
        except UnicodeDecodeError:
            raise InputError(f"--model-file {place}: not a text in UTF-8; give a file of Python") from None

    @classmethod
    def unpacked(cls, packed: str) -> ModelFile:
        """The file that the method `packed` has packed. InputError: it is something else."""
        name, _, content = packed.partition(":")
        try:
            return cls(name, zlib.decompress(base64.b64decode(content, validate=True)).decode())
        except (ValueError, zlib.error):
            raise InputError(
                f"model_file {packed[:20]!r} is no packed file; submit.py makes it of --model-file"
            ) from None

    def packed(self) -> str:
        """Name and content, in characters that no program on the way to a step replaces. InputError: too long."""
        content = base64.b64encode(zlib.compress(self.text.encode(), 9)).decode()
        if len(content) > _MOST_PACKED:
            raise InputError(
                f"--model-file {self.place}: {len(content) // 1024} KiB compressed, a step of the pipeline is given "
                f"{_MOST_PACKED // 1024} at most"
            )
        return f"{PurePosixPath(self.place).name.replace(':', '_')}:{content}"

    def write(self, folder: Path) -> None:
        """Write the file into the model's `folder`."""
        with storage.replacing(folder / NAME) as temporary:
            temporary.write_text(self.text, encoding="utf-8", newline="")

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def run(self) -> Mapping[str, FitConfig]:
        """The configs that the file states, by name. It runs once in a process.

        InputError: it does not run, states no model or several, or gives a config a name that is taken.
        """
        if self.sha256 not in _RUN:
            _RUN[self.sha256] = self, _stated(self)
        return _RUN[self.sha256][1]


_RUN: dict[str, tuple[ModelFile, Mapping[str, FitConfig]]] = {}  # files that have run in this process, by SHA-256


def file_of(config: FitConfig) -> ModelFile | None:
    """The user's file that states the model of `config`; it has run. None for a model of this program."""
    return _RUN[config.model_file][0] if config.model_file else None


@contextmanager
def offered(file: ModelFile | None) -> Iterator[None]:
    """In the block, only the configs of `file` can be named; without a file, those of this program."""
    before = dict(CONFIGS)
    if file is not None:
        stated = file.run()
        CONFIGS.clear()
        CONFIGS.update(stated)
    try:
        yield
    finally:
        CONFIGS.clear()
        CONFIGS.update(before)


def _stated(file: ModelFile) -> Mapping[str, FitConfig]:
    """What `ModelFile.run` returns, and its errors; nothing of a file with an error is left behind."""
    hint = "it needs a config with @register, and a named one in CONFIGS (CONTRIBUTING.md, A model)"
    before = dict(CONFIGS)
    with offered(None), stating(file.sha256):  # `offered` removes again the configs that the file adds
        _execute(file)
        stated = {name: config for name, config in CONFIGS.items() if before.get(name) is not config}
        kinds = {type(config): config.model for config in stated.values()}
        if not stated:
            raise InputError(f"{file.place}: states no model; {hint}")
        if taken := [name for name in stated if name in before and not before[name].model_file]:
            raise InputError(f"{file.place}: a config called {taken[0]} is known already; give it another name")
        if others := [model for kind, model in kinds.items() if kind.model_file != file.sha256]:
            raise InputError(f"{file.place}: names a config of the model {others[0]}, which it does not state; {hint}")
        if len(kinds) > 1:
            raise InputError(
                f"{file.place}: states {len(kinds)} models, {' and '.join(kinds.values())}; give each a file"
            )
    return stated


def run_file(folder: Path, sha256: str | None) -> None:
    """Run the user's file with this SHA-256, which states the model in `folder`; `sha256` is None if no file does.

    The file of a folder on gs:// does not run, since others may have put it there: it must be given, and have run.
    """
    if not sha256 or address(folder).startswith("gs:"):
        return
    file = ModelFile.read(folder / NAME)
    if file.sha256 != sha256:
        raise InputError(f"{folder / NAME}: not the file that the model was trained with; restore it")
    file.run()


def _execute(file: ModelFile) -> None:
    """Run `file` as a module of its own. Its lines are kept, because TensorFlow looks for the source of functions."""
    module = ModuleType(f"model_{file.sha256[:16]}")
    module.__file__ = file.place
    lines = file.text.splitlines(keepends=True)
    linecache.cache[file.place] = (len(file.text), None, lines, file.place)
    sys.modules[module.__name__] = module  # dataclasses look here for the names in annotations
    try:
        exec(compile(file.text, file.place, "exec", dont_inherit=True), module.__dict__)  # noqa: S102  asked for
    except Exception as error:
        del sys.modules[module.__name__]
        if isinstance(error, SyntaxError) and error.filename == file.place:
            raise InputError(f"{file.place}:{error.lineno}: {error.msg}") from error
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file.place]
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise InputError(f"{file.place}:{own[-1] if own else 0}: {reason}") from error
