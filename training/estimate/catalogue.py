"""The catalogue of devices: their rates, interconnects and prices, in one dated TOML file that a user can replace."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from calopipe.errors import InputError

BUILT_IN = Path(__file__).with_name("catalogue.toml")
PLATFORMS = ("cpu", "gpu", "tpu")


@dataclass(frozen=True)
class Peak:
    """The device's own limit in each precision, in TFLOP/s."""

    tflops: dict[str, float]
    source: str


@dataclass(frozen=True)
class Memory:
    gb: float
    source: str


@dataclass(frozen=True)
class Link:
    """Between devices: `alpha_s` seconds a message, and bytes, in GB/s one way."""

    alpha_s: float
    gb_a_second: float
    source: str


@dataclass(frozen=True)
class Start:
    """From the command to the second step: least, likely and most `seconds`."""

    seconds: list[float]
    source: str


@dataclass(frozen=True)
class Price:
    """Dollars an hour and device; None where none is known."""

    date: str
    source: str
    on_demand: float | None = None
    spot: float | None = None


@dataclass(frozen=True)
class Rate:
    """What the device achieved: `tflops` of the plain operations of `model`, and `step_s` more for each step.

    `spread` are the least and the most of the seconds, over those that follow from it. `judging` is the time of judging
    a shower over that of training on one, for models whose operations in judging cannot be counted.
    """

    model: str
    precision: str
    tflops: float
    spread: list[float]
    source: str
    step_s: float = 0.0
    judging: float | None = None


@dataclass(frozen=True)
class Kind:
    """A kind of device. `gke` are GKE's names of it; `host_tflops` is the rate of its host, where that judges."""

    title: str
    platform: str
    devices_a_host: int
    peak: Peak
    memory: Memory
    local: Link
    network: Link
    start: Start
    price: Price
    gke: list[str]
    rate: list[Rate]
    host_tflops: float | None = None

    def rate_of(self, model: str, precision: str) -> Rate | None:
        return next((each for each in self.rate if (each.model, each.precision) == (model, precision)), None)


@dataclass(frozen=True)
class Input:
    """What the input pipeline of a host gives."""

    showers_a_second: float
    source: str


@dataclass(frozen=True)
class Catalogue:
    date: date
    input: Input
    kind: dict[str, Kind]

    def kind_called(self, name: str) -> str | None:
        """The kind of that name, or whose name on GKE that is."""
        return next((key for key, kind in self.kind.items() if name == key or name in kind.gke), None)

    def devices(self, text: str) -> tuple[str, int]:
        """The kind and the number of "KIND[:COUNT]"."""
        name, _, count = text.partition(":")
        if (kind := self.kind_called(name)) is None:
            raise InputError(f"--devices {text}: unknown kind {name!r}; known: {', '.join(self.kind)}")
        if not re.fullmatch(r"[1-9][0-9]*", count or "1", re.ASCII):
            raise InputError(f"--devices {text}: expected KIND or KIND:COUNT, for example v100:8")
        return kind, int(count or 1)


def load_catalogue(path: Path | None = None) -> Catalogue:
    """The catalogue in the file at `path`, or the built-in one. InputError names the file and the field."""
    place = path or BUILT_IN
    try:
        document = tomllib.loads(place.read_text())
    except FileNotFoundError:
        raise InputError(f"--catalogue {place}: no such file; check the name") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{place}: not valid TOML ({error}); copy {BUILT_IN.name} and change its numbers") from None
    try:
        catalogue: Catalogue = _made(Catalogue, document, "")
        _check(catalogue)
    except _WrongError as error:
        raise InputError(f"{place}: {error}; copy {BUILT_IN.name} and change its numbers") from None
    return catalogue


class _WrongError(ValueError):
    """A field that is not as it must be; the message begins with its name."""


def _made(kind: Any, value: Any, name: str) -> Any:
    """`value` of the TOML file as an object of `kind`: a dataclass, a list, a mapping by name, a number, a text."""
    if get_origin(kind) is list:
        if not isinstance(value, list):
            raise _WrongError(f"{name} is {value!r}, expected a list")
        return [_made(get_args(kind)[0], each, f"{name}[{number}]") for number, each in enumerate(value)]
    if get_origin(kind) is dict:
        return {key: _made(get_args(kind)[1], each, f"{name}.{key}") for key, each in _table(value, name).items()}
    if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"):
        return _object(kind, _table(value, name), name)
    if float in (kind, *get_args(kind)) or kind is int:
        whole = kind is int
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not 0 <= value < 1e15:
            raise _WrongError(f"{name} is {value!r}, expected a {'whole ' * whole}number of at least 0")
        return value
    if not isinstance(value, kind):
        raise _WrongError(f"{name} is {value!r}, expected a {'text' if kind is str else kind.__name__}")
    return value


def _table(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _WrongError(f"{name} is {value!r}, expected a table")
    return value


def _object(kind: Any, table: Mapping[str, Any], name: str) -> Any:
    prefix, types = f"{name}." if name else "", get_type_hints(kind)
    if unknown := sorted(table.keys() - types.keys()):
        raise _WrongError(f"{prefix}{unknown[0]} is unknown, known: {', '.join(types)}")
    for each in fields(kind):
        if each.name not in table and each.default is MISSING:
            raise _WrongError(f"{prefix}{each.name} is missing")
    return kind(**{key: _made(types[key], value, f"{prefix}{key}") for key, value in table.items()})


def _check(catalogue: Catalogue) -> None:
    """Raise _WrongError for values that no device has."""
    for name, kind in catalogue.kind.items():
        here = f"kind.{name}"
        if kind.platform not in PLATFORMS:
            raise _WrongError(f"{here}.platform is {kind.platform!r}, expected one of {', '.join(PLATFORMS)}")
        if len(kind.start.seconds) != 3 or kind.start.seconds != sorted(kind.start.seconds):
            raise _WrongError(f"{here}.start.seconds is {kind.start.seconds}, expected three rising numbers")
        if "float32" not in kind.peak.tflops:
            raise _WrongError(f"{here}.peak.tflops.float32 is missing")
        positive = {"devices_a_host": kind.devices_a_host, "memory.gb": kind.memory.gb}
        positive |= {f"{link}.gb_a_second": getattr(kind, link).gb_a_second for link in ("local", "network")}
        positive |= {f"peak.tflops.{precision}": rate for precision, rate in kind.peak.tflops.items()}
        positive |= {f"rate[{number}].tflops": rate.tflops for number, rate in enumerate(kind.rate)}
        for field, value in positive.items():
            if not value > 0:
                raise _WrongError(f"{here}.{field} is {value}, expected more than 0")
        for number, rate in enumerate(kind.rate):
            if len(rate.spread) != 2 or not 0 < rate.spread[0] <= 1 <= rate.spread[1]:
                raise _WrongError(f"{here}.rate[{number}].spread is {rate.spread}, expected two numbers about 1")
    if not catalogue.input.showers_a_second > 0:
        raise _WrongError(f"input.showers_a_second is {catalogue.input.showers_a_second}, expected more than 0")
