"""The flow behind an obstacle: its grid, its HDF5 files, and what is computed from a velocity field."""
