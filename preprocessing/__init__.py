"""HDF5 showers in, a dataset of TFRecord shards out; and the types every stage shares."""
