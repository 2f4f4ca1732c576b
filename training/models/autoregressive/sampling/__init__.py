"""How showers are drawn: `sampler` layer after layer, `layer` the cells of one, the others for it."""
