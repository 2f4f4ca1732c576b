"""One shower as one TFRecord: its non-zero cells, losslessly, and its labels. No TensorFlow in here.

A record is a `tf.train.Example` with the features

    index   bytes   positions of the non-zero cells in the flattened (x, y, layer) array, little-endian integers
    value   bytes   their deposits in file units, little-endian float32
    energy, theta, mtheta   float   incident energy in GeV, polar angle and measured angle in rad
    phi_rad   float, particle   int64   azimuth and PDG code, where the file has them
    event   int64   index of the shower in its file

About 1.5 % of the cells of the Geant4 sample are not zero, so a record takes 1/45 of the dense shower's bytes.
`preprocessing.reading` is the other side.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import google_crc32c
import numpy as np
import numpy.typing as npt

from calopipe.labels import PARTICLE, PHI, MoreLabels
from calopipe.showers.cells import FloatArray
from calopipe.showers.hits import Hits

_CRC_MASK = 0xA282EAD8  # of the TFRecord format
_BYTES, _FLOATS, _INTEGERS = 1, 2, 3  # numbers of the lists in the message `tensorflow.Feature`


def index_type(cells: int) -> str:
    """The smallest integer that counts so many cells and that `tf.io.decode_raw` knows, by NumPy's name."""
    return "uint16" if cells <= 1 << 16 else "int32"


def encode(
    hits: Hits, energy_gev: FloatArray, theta_rad: FloatArray, mtheta_rad: FloatArray, events: npt.NDArray[np.int64],
    *, more: MoreLabels | None = None,
) -> Iterator[bytes]:  # fmt: skip
    """The serialised `tf.train.Example` of each shower; the labels and `events`, indices in the file, are (N,)."""
    more = more or {}
    index = hits.cell.astype(np.dtype(index_type(int(np.prod(hits.shape[1:])))).newbyteorder("<"))
    value = hits.value.astype("<f4")
    edges = hits.edges()
    for row in range(len(hits)):
        inside = slice(edges[row], edges[row + 1])
        labels = {}
        if PARTICLE in more:
            labels[PARTICLE] = _INTEGERS, _varint(int(more[PARTICLE][row]) % (1 << 64))  # two's complement
        if PHI in more:
            labels[PHI] = _FLOATS, struct.pack("<f", more[PHI][row])
        yield _example(
            energy=(_FLOATS, struct.pack("<f", energy_gev[row])),
            event=(_INTEGERS, _varint(int(events[row]))),
            index=(_BYTES, index[inside].tobytes()),
            mtheta=(_FLOATS, struct.pack("<f", mtheta_rad[row])),
            **labels,
            theta=(_FLOATS, struct.pack("<f", theta_rad[row])),
            value=(_BYTES, value[inside].tobytes()),
        )


def example(**features: bytes | float | int) -> bytes:
    """The serialised `tf.train.Example` of features of one value each."""
    kinds = {
        name: (_BYTES, value)
        if isinstance(value, bytes)
        else (_INTEGERS, _varint(value))
        if isinstance(value, int)
        else (_FLOATS, struct.pack("<f", value))
        for name, value in sorted(features.items())
    }
    return _example(**kinds)


def framed(record: bytes) -> bytes:
    """`record` as it is in a TFRecord file: length, checksum of the length, record, checksum of the record."""
    length = struct.pack("<Q", len(record))
    return length + _masked_crc(length) + record + _masked_crc(record)


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _CRC_MASK) & 0xFFFFFFFF)


def _example(**features: tuple[int, bytes]) -> bytes:
    """The message `tensorflow.Example` of features, each a kind of list and its one value, in the order of names.

    Written by hand because the message's classes are in TensorFlow, which Beam's workers would take seconds to load.
    """
    entries = [
        _field(1, _field(1, name.encode()) + _field(2, _field(kind, _field(1, value))))
        for name, (kind, value) in features.items()
    ]
    return _field(1, b"".join(entries))


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes, a string, a message or packed numbers, as protobuf writes it."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that another byte follows."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
