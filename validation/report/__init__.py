"""The report and its plots."""
