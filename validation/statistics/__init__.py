"""Estimates with confidence intervals, and distances between samples."""
