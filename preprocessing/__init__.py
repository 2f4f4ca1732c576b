"""Preprocessing: from HDF5 files of events to a dataset of TFRecord shards."""
