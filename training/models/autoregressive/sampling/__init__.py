"""How showers are drawn: `shower` draws totals and axis, and calls `layer`, which draws the cells of one layer."""
