"""How showers are drawn: `shower` their totals and axis, `sampler` layer after layer, `layer` the cells of one."""
