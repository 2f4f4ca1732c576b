"""Observables of showers, measured into a table."""
