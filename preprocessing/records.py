"""One shower as one TFRecord: its non-zero cells, losslessly, and its labels. This module does not load TensorFlow.

A record is a `tf.train.Example` with the features

    index   bytes   positions of the non-zero cells in the flattened (x, y, layer) array, little-endian integers
    value   bytes   their deposits in file units, little-endian float32
    energy, theta, mtheta   float   incident energy in GeV, polar angle and measured angle in rad
    phi_rad   float, particle   int64   azimuth and PDG code, where the file has them
    event   int64   index of the shower in its file

About 1.5 % of the cells of the Geant4 sample are not zero, so a record takes 1/45 of the dense shower's bytes.
`preprocessing.reading` reads the records.
"""

from __future__ import annotations

import struct

import google_crc32c

_CRC_MASK = 0xA282EAD8  # of the TFRecord format


def index_type(cells: int) -> str:
    """NumPy's name of the smallest integer type that counts `cells` cells and that `tf.io.decode_raw` knows."""
    return "uint16" if cells <= 1 << 16 else "int32"


def example(**features: bytes | float | int) -> bytes:
    """The serialised `tf.train.Example` of features of one value each, in the order of their names.

    It is written here, because the message's classes are in TensorFlow, which Beam's workers take seconds to load.
    """
    entries = [
        _field(1, _field(1, name.encode()) + _field(2, _list(value))) for name, value in sorted(features.items())
    ]
    return _field(1, b"".join(entries))


def _list(value: bytes | float | int) -> bytes:
    """The message `tensorflow.Feature` of one value. The type of the value decides the field number of its list."""
    if isinstance(value, bytes):
        return _field(1, _field(1, value))
    if isinstance(value, int):
        return _field(3, _field(1, _varint(value % (1 << 64))))  # two's complement
    return _field(2, _field(1, struct.pack("<f", value)))


def framed(record: bytes) -> bytes:
    """`record` as it is in a TFRecord file: length, checksum of the length, record, checksum of the record."""
    length = struct.pack("<Q", len(record))
    return length + _masked_crc(length) + record + _masked_crc(record)


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _CRC_MASK) & 0xFFFFFFFF)


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes, a string, a message or packed numbers, as protobuf writes it."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """A number as protobuf writes it: seven bits a byte, the lowest first; the eighth bit says that a byte follows."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
