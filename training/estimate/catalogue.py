"""The catalogue of devices: their rates, interconnects and prices, in one dated TOML file that a user can replace."""

from __future__ import annotations

import re
import tomllib
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from calopipe.errors import InputError

BUILT_IN = Path(__file__).with_name("catalogue.toml")


@dataclass(frozen=True)
class Peak:
    """The device's peak rate in each precision, in TFLOP/s; None where it is no faster than float32."""

    float32: float
    tf32: float | None = None
    bfloat16: float | None = None
    float16: float | None = None

    def of(self, precision: str) -> float:
        return getattr(self, precision, None) or self.float32


@dataclass(frozen=True)
class Link:
    """The link between devices: `alpha_s` seconds for each message, and its bandwidth one way, in GB/s."""

    alpha_s: float
    gb_a_second: float


@dataclass(frozen=True)
class Price:
    """Dollars for an hour of a device; None where no price is known."""

    on_demand: float | None = None
    spot: float | None = None


@dataclass(frozen=True)
class Rate:
    """What the device achieved: `tflops` for the plain operations of `model`, and `step_s` more for each step.

    `spread` are the least and the most seconds that may be needed, over the seconds that follow from this rate.
    """

    model: str
    precision: str
    tflops: float
    spread: tuple[float, float]
    step_s: float = 0.0


@dataclass(frozen=True)
class Kind:
    """A device. `start_s` are the seconds from the command to the second step: least, likely and most."""

    platform: Literal["cpu", "gpu", "tpu"]
    devices_a_host: int
    peak: Peak
    memory_gb: float
    local: Link
    network: Link
    start_s: tuple[float, float, float]
    price: Price
    rate: list[Rate]

    def rate_of(self, model: str, precision: str) -> Rate | None:
        return next((rate for rate in self.rate if (rate.model, rate.precision) == (model, precision)), None)


@dataclass(frozen=True)
class Catalogue:
    """Devices by name. The input pipeline of a host reads `input_showers_a_second`."""

    date: date
    input_showers_a_second: float
    kind: dict[str, Kind]

    def devices(self, text: str) -> tuple[str, int]:
        """The kind and the number of "KIND[:COUNT]"."""
        name, _, count = text.partition(":")
        if name not in self.kind:
            raise InputError(f"--devices {text}: unknown kind {name!r}; known: {', '.join(self.kind)}")
        if not re.fullmatch(r"[1-9][0-9]*", count or "1", re.ASCII):
            raise InputError(f"--devices {text}: expected KIND or KIND:COUNT, for example v100:8")
        return name, int(count or 1)


def load_catalogue(path: Path | None = None) -> Catalogue:
    """The catalogue in the file `path`, or the built-in catalogue. InputError names the file and the field."""
    place = path or BUILT_IN
    try:
        catalogue: Catalogue = _made(Catalogue, tomllib.loads(place.read_text()), "")
    except FileNotFoundError:
        raise InputError(f"--catalogue {place}: no such file; check the name") from None
    except ValueError as error:  # wrong syntax or encoding, or an error of _made
        raise InputError(f"{place}: {error}; copy {BUILT_IN.name} and change its numbers") from None
    return catalogue


def _made(kind: Any, value: Any, name: str) -> Any:
    """`value`, which the file has under `name`, as a `kind`. ValueError names what is wrong."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind) or origin is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{name} is {value!r}, expected a table")
        prefix = f"{name}." if name else ""
        types = get_type_hints(kind) if is_dataclass(kind) else dict.fromkeys(value, inner[1])
        if unknown := sorted(value.keys() - types.keys()):
            raise ValueError(f"{prefix}{unknown[0]} is unknown, known: {', '.join(types)}")
        for entry in fields(kind) if is_dataclass(kind) else ():
            if entry.name not in value and entry.default is MISSING:
                raise ValueError(f"{prefix}{entry.name} is missing")
        return (origin or kind)(**{key: _made(types[key], entry, f"{prefix}{key}") for key, entry in value.items()})
    if origin in (list, tuple):
        if not isinstance(value, list) or (origin is tuple and len(value) != len(inner)):
            raise ValueError(f"{name} is {value!r}, expected a list{f' of {len(inner)} numbers' * (origin is tuple)}")
        return origin(_made(inner[0], entry, f"{name}[{number}]") for number, entry in enumerate(value))
    if origin is Literal:
        valid, expected = value in inner, f"one of {', '.join(inner)}"
    elif kind is int or float in (kind, *inner):
        number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
        valid, expected = number and 0 < value < 1e15, f"a {'whole ' * (kind is int)}number above 0"
    else:
        valid, expected = isinstance(value, kind), {str: "a text", date: "a date"}[kind]
    if not valid:
        raise ValueError(f"{name} is {value!r}, expected {expected}")
    return value
