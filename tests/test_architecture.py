"""The packages: which package may import which, and that no imports form a circle."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import said

ROOT = Path(__file__).parent.parent

PACKAGES = {
    "calopipe": set[str](),
    "preprocessing": {"calopipe"},
    "validation": {"calopipe"},
    "training": {"calopipe", "preprocessing"},
    "components": {"calopipe", "preprocessing", "training", "validation"},
    "pipelines": {"calopipe", "preprocessing", "training", "components"},
}

# Within a package from the ground up: a module imports from its own layer and from those before it. A module belongs
# where the longest of these names fits.
LAYERS = {
    "calopipe": (("calopipe",), ("calopipe.events",), ("calopipe.flow",), ("calopipe.showers",)),
    "validation": (
        ("validation.measure",), ("validation.statistics",), ("validation.calochallenge",), ("validation.judge",),
        ("validation.report",), ("validation",),
    ),
    "training": (
        ("training.configs", "training.model_folder", "training.models", "training.nodes"), ("training.engine",),
        ("training.run",), ("training.estimate",), ("training",), ("training.registry",), ("training.__main__",),
    ),
    "pipelines": (
        ("pipelines.cluster", "pipelines.parameters"), ("pipelines",),
        ("pipelines.local_run", "pipelines.remote"), ("pipelines.submit",),
    ),
}  # fmt: skip


def modules() -> dict[str, Path]:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The project's modules that the module at `path` imports, anywhere in its code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known or node.module in known:
                    yield inner if inner in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def layer(module: str) -> int:
    fits = {
        prefix: number
        for number, prefixes in enumerate(LAYERS[module.partition(".")[0]])
        for prefix in prefixes
        if f"{module}.".startswith(f"{prefix}.")
    }
    return fits[max(fits, key=len)]


def test_imports_go_to_other_packages_as_they_may_within_one_downwards_and_in_no_circle() -> None:
    known = modules()
    graph = {name: set(imports(path, known)) for name, path in known.items()}
    assert sum(map(len, graph.values())) > 300  # or the search is broken
    for module, others in graph.items():
        for other in others:
            mine, theirs = (each.partition(".")[0] for each in (module, other))
            assert mine == theirs or theirs in PACKAGES[mine], (module, other)
            assert mine != theirs or mine not in LAYERS or layer(other) <= layer(module), (module, other)
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names it


_STACK = ("tensorflow", "keras", "apache_beam")
_LIGHT = {
    "pipelines.submit; pipelines.submit.parser()": (*_STACK, "h5py", "scipy", "matplotlib", "kfp", "kubernetes"),
    "training.__main__, training.estimate.estimate, pipelines.checks, components.step": (*_STACK, "kfp"),
    "calopipe.storage, calopipe.verdict, calopipe.grade": (*_STACK, "h5py", "kfp", "numpy"),
    "calopipe.kubernetes": ("kubernetes", "kfp", "numpy"),
    "components.train, pipelines.tasks, pipelines.remote.commands, training.nodes.trainjob": _STACK,
    "calopipe.showers.files, calopipe.flow.files, validation.compare": (*_STACK, "kfp", "scipy.signal"),
}


@pytest.mark.parametrize(("imported", "absent"), _LIGHT.items())
def test_imports_stay_light(imported: str, absent: tuple[str, ...]) -> None:
    program = f"import sys, {imported}; print(sorted(set({absent!r}) & set(sys.modules)))"
    assert said(sys.executable, "-c", program, cwd=ROOT) == "[]\n"


def test_no_folder_shows_more_than_a_dozen_or_so_files() -> None:
    folders = {path.parent for path in modules().values()}
    crowded = {folder.name: len(list(folder.glob("*.py"))) for folder in folders}
    assert max(crowded.values()) <= 14, crowded


def test_nothing_beside_the_script_hides_a_module_of_python() -> None:
    """`python pipelines/submit.py` looks for modules beside itself first."""
    beside = {path.stem for path in (ROOT / "pipelines").iterdir()}
    assert not beside & sys.stdlib_module_names
