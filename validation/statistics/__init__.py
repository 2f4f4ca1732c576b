"""Estimates with intervals, and distances between samples."""
