"""Estimates of what a training will need: time, memory, money. `docs/scaling.md` has the formula and its check."""
