"""The shower: its cells, hits and angle, the HDF5 layouts it comes in, flaws, splits, profiles."""
