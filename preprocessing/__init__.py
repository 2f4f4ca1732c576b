"""HDF5 showers in, a dataset of TFRecord shards out."""
