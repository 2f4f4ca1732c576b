"""Showers: cells, hits, angle, HDF5 files and their layouts, flaws, splits, selection, figure of merit."""
