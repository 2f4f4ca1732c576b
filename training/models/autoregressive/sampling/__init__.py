"""How showers are drawn: `shower` draws totals and axis, `layer` the cells of one layer; `sampler` calls both."""
