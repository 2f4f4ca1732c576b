"""Flows: from HDF5 files of simulations to datasets of pairs of frames."""
