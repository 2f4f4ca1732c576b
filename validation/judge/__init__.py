"""Criteria, their answers, and the verdict."""
