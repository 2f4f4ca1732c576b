"""One shower as one TFRecord: its non-zero cells, losslessly, and its labels. No TensorFlow in here.

A record is a `tf.train.Example` with the features

    index   bytes   positions of the non-zero cells in the flattened (x, y, layer) array, little-endian integers
    value   bytes   their deposits in file units, little-endian float32
    energy, theta, mtheta   float   incident energy in GeV, polar angle and measured angle in rad
    event   int64   index of the shower in its file

About 1.5 % of the cells of the Geant4 sample are not zero, so a record takes 1/45 of the dense shower's bytes.
`preprocessing.reading` is the other side.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from calopipe.showers.cells import FloatArray
from calopipe.showers.hits import Hits

_CRC_MASK = 0xA282EAD8  # of the TFRecord format


def index_type(cells: int) -> str:
    """The smallest integer that counts so many cells and that `tf.io.decode_raw` knows, by NumPy's name."""
    return "uint16" if cells <= 1 << 16 else "int32"


def encode(
    hits: Hits, energy_gev: FloatArray, theta_rad: FloatArray, mtheta_rad: FloatArray, events: npt.NDArray[np.int64]
) -> Iterator[bytes]:
    """The serialised `tf.train.Example` of each shower; the labels and `events`, indices in the file, are (N,)."""
    index = hits.cell.astype(np.dtype(index_type(int(np.prod(hits.shape[1:])))).newbyteorder("<"))
    value = hits.value.astype("<f4")
    edges = hits.edges()
    for row in range(len(hits)):
        inside = slice(edges[row], edges[row + 1])
        example = _example_class()()
        feature = example.features.feature
        feature["index"].bytes_list.value.append(index[inside].tobytes())
        feature["value"].bytes_list.value.append(value[inside].tobytes())
        feature["energy"].float_list.value.append(float(energy_gev[row]))
        feature["theta"].float_list.value.append(float(theta_rad[row]))
        feature["mtheta"].float_list.value.append(float(mtheta_rad[row]))
        feature["event"].int64_list.value.append(int(events[row]))
        yield example.SerializeToString(deterministic=True)


def framed(record: bytes) -> bytes:
    """`record` as it stands in a TFRecord file: length, checksum of the length, record, checksum of the record."""
    length = struct.pack("<Q", len(record))
    return length + _masked_crc(length) + record + _masked_crc(record)


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _CRC_MASK) & 0xFFFFFFFF)


@lru_cache(maxsize=1)
def _example_class() -> Any:
    """The message class of `tf.train.Example`, described here so that Beam's workers need no TensorFlow.

    The description lives in a pool of its own: TensorFlow registers the same names in the default one.
    """
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")
    field_type = descriptor_pb2.FieldDescriptorProto

    def message(name: str) -> descriptor_pb2.DescriptorProto:
        return file.message_type.add(name=name)

    def field(
        owner: descriptor_pb2.DescriptorProto, name: str, number: int, kind: Any, *, repeated: bool = False,
        type_name: str | None = None,
    ) -> descriptor_pb2.FieldDescriptorProto:  # fmt: skip
        label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
        return owner.field.add(name=name, number=number, type=kind, label=label, type_name=type_name)

    for list_name, kind in (
        ("BytesList", field_type.TYPE_BYTES),
        ("FloatList", field_type.TYPE_FLOAT),
        ("Int64List", field_type.TYPE_INT64),
    ):
        field(message(list_name), "value", 1, kind, repeated=True)

    feature = message("Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), start=1):
        type_name = ".tensorflow." + name.title().replace("_", "")
        field(feature, name, number, field_type.TYPE_MESSAGE, type_name=type_name).oneof_index = 0

    features = message("Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    field(entry, "key", 1, field_type.TYPE_STRING)
    field(entry, "value", 2, field_type.TYPE_MESSAGE, type_name=".tensorflow.Feature")
    entry_name = ".tensorflow.Features.FeatureEntry"
    field(features, "feature", 1, field_type.TYPE_MESSAGE, repeated=True, type_name=entry_name)

    field(message("Example"), "features", 1, field_type.TYPE_MESSAGE, type_name=".tensorflow.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))
