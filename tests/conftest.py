"""Settings and fixtures of all tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kubeflow_server import Kubeflow
    from servers import Proxy

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as training sets it, also where a test loads TensorFlow first
os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")  # else a process stays as large as its largest test
for _name in ("no_proxy", "NO_PROXY"):  # the servers of tests are on this machine
    os.environ[_name] = ",".join(filter(None, (os.environ.get(_name), "127.0.0.1", "localhost")))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A function that mounts a disk of so many kilobytes. Called again, it changes the size of that disk."""
    disk = tmp_path / "disk"
    mounted = False

    def of_size(kilobytes: int) -> Path:
        nonlocal mounted
        disk.mkdir(exist_ok=True)
        options = f"{'remount,' if mounted else ''}size={kilobytes}k"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
        mounted = True
        return disk

    yield of_size
    if mounted:  # lazily: a summary writer of TensorFlow may still hold a file open
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are hashed from now on."""
    from calopipe import storage

    names: list[str] = []
    of_file = storage.sha256_of_file

    def noted(path: storage.Location) -> str:
        names.append(path.name)
        return of_file(path)

    monkeypatch.setattr(storage, "sha256_of_file", noted)
    return names


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the pictures of reports empty, since drawing takes most of the time of a comparison. Titles stay."""
    for module in ("validation.report.plots", "validation.flow.report"):
        monkeypatch.setattr(f"{module}.png", lambda *_, **__: b"\x89PNG")


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before an object store with the bucket `runs`. Temporary files are in a folder of the test's own."""
    from servers import store

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    with store("runs") as running:
        yield running


@pytest.fixture
def kubeflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubeflow]:
    """A server with the API of Kubeflow Pipelines, which commands find. No request may break the contract."""
    from kubeflow_server import serve

    with serve() as running:
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", running.address)
        yield running
    assert not running.departures


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of 80 showers; an epoch is seven steps of eight showers."""
    from trainings import small_dataset

    return small_dataset(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Monte Carlo `mc.h5` and a barely trained model `model`."""
    from showers import make_dataset, make_file
    from trainings import untraced

    from training.configs import named_config
    from training.fit import fit

    folder = tmp_path_factory.mktemp("trained")
    make_file(folder / "mc.h5", events=100)
    make_dataset(folder / "ds", folder / "mc.h5")
    with untraced():
        fit(folder / "ds", folder / "model", named_config("small", steps=2))
    return folder
