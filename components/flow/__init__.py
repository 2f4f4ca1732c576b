"""The steps that only the pipeline of flows has."""
