// The context of a layer, an input of the densities: `context` of the model in Python.
#pragma once

#include "frame.hh"

namespace calopipe {

// SUMS of all layers before, of the layer before, and of the layer before that.
struct Before {
  Sums all{}, one{}, two{};
};

// The context of the layer's odd cells, where `even` are the SUMS of its even cells, and `promised` is the energy that
// the even cells were promised. Without `even`: the context of the even cells.
Numbers context(const Plan& plan, const LayerFrame& frame, const Before& before, const Sums* even = nullptr,
                float promised = 0);
// Adds to the contexts of even cells the `logit` of their share of the layer's `energy`, and the log of this share of
// the energy.
void add_share(float logit, float energy, Numbers& contexts);
// Adds to the contexts of a colour's cells the log of the `count` of its hits, and the log of the colour's `energy` a
// hit.
void add_count(float count, float energy, Numbers& contexts);
// Scales contexts, or their first numbers, for the networks of a colour: to mean 0 and width 1 in training, then cut.
void normalise(const Constants& of, int colour, const Numbers& contexts, Numbers& into);

}  // namespace calopipe
