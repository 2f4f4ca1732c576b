"""The input of a dataset of showers: files are found, their headers and labels are checked once, and remembered."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import TYPE_CHECKING

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.contents import Header, distinct, read_memory, write_memory
from calopipe.events.tolerance import STOP, Tolerance
from calopipe.storage import Location
from preprocessing.inputs import InputFile, Inputs, looked_at, sorted_out
from preprocessing.showers.plausibility import look_at

if TYPE_CHECKING:
    from calopipe.showers.files import ShowerFile

logger = logging.getLogger(__name__)


def discover(
    patterns: Sequence[str],
    geometry: str = "",
    *,
    tolerance: Tolerance | None = None,
    memory: Location | None = None,
) -> Inputs:
    """The input files that `patterns` name, each content once. The header and the labels of each are checked.

    `geometry` is as in a `calopipe.showers.selection.Selection`. The folder `memory` remembers the results: a file
    whose stamp is the same is not opened again. Raises InputError, also for showers that this program generated. A file
    that does not hold showers is left out if `tolerance` says so. Units, scale or axes that are not plausible
    (`preprocessing.showers.plausibility`) are a warning, or an error if `tolerance` says so.
    """
    allowed, began = tolerance or Tolerance(), time.time()
    paths = storage.expand(patterns)
    remembered = read_memory(memory)
    files_then = remembered["files"] if remembered["geometry"] == geometry else {}
    remembered_files = {text: InputFile.from_json(storage.location(text), file) for text, file in files_then.items()}
    opened: list[ShowerFile] = []

    def look(path: Location, stamp: tuple[int, int]) -> InputFile:
        from calopipe.showers.files import open_showers  # noqa: PLC0415  loads HDF5, not needed if no file is new

        file = open_showers(path, geometry, allowed.on_bad_event)
        opened.append(file)
        if file.request is not None:
            raise InputError(f"{path}: holds generated showers, Monte Carlo is expected; leave it out of --input")
        header = {field.name: getattr(file, field.name) for field in fields(Header)}
        return InputFile(**header, stamp=stamp, look=reader.submit(look_at, file).result())

    # HDF5 lets only one thread read, and every thread would keep the memory that its dense showers took
    with ThreadPoolExecutor(1) as reader:
        inputs = storage.at_once(lambda path: looked_at(path, remembered_files, look), paths)
    if opened:
        from calopipe.showers.files import warn_of_assumptions  # noqa: PLC0415

        warn_of_assumptions(opened)
    resting = [file for file in inputs if isinstance(file, InputFile) and storage.settled(file.path, file.stamp, began)]
    table = remembered_files | {str(file.path.absolute()): file for file in resting}
    if memory is not None and table != remembered_files:
        write_memory(memory, geometry, {text: table[text].to_json() for text in sorted(table)})
    files, bad = sorted_out(inputs, paths, allowed)
    for file in files:
        for doubt in file.look.doubts if file.look else ():
            if allowed.on_doubt == STOP:
                raise InputError(f"{file.path}: not plausible: {doubt} Correct it, or go on with --on-doubt warn")
            logger.warning("%s: not plausible: %s", file.path, doubt)
    return Inputs(tuple(distinct(files)), bad)
