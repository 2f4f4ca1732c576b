"""Showers from likelihoods: the totals of a shower first, then its cells, layer by layer.

    p(shower | E, theta) = p(totals | E, theta) x product over cells of p(cell | totals, the cells before it)

The cells come layer by layer, in each the even ones and then the odd ones.

`frame` says where a shower's axis is, `totals` what its totals are and how they are made normal, `context` what a cell
is told beside its neighbours, `networks` the densities, `constants` what is computed from the train split once, `rows`
which cells a training step looks at, `sampling` how showers are drawn, and `model` ties them to the engine.
"""
