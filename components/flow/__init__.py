"""The steps of a flow that showers do not have."""
