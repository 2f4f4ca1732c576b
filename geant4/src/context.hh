// What the densities are given of a layer: `context` of the model in Python.
#pragma once

#include "frame.hh"

namespace calopipe {

// SUMS of all layers before, of the last of them, and of the one before that.
struct Before {
  Sums all{}, one{}, two{};
};

// `even` are those of the layer's even cells, none for the context of these.
Numbers context(const Plan& plan, const LayerFrame& frame, const Before& before, const Sums* even);
// Adds what even cells are given of their share of the layer's energy.
void add_share(float logit, float energy, Numbers& contexts);
// The share of this logit, which is nothing or all at its ends.
float share_of(float logit);
// The contexts as the networks of a colour want them: all of them, or the first ones.
void normalise(const Constants& of, int colour, const Numbers& contexts, Numbers& into);

}  // namespace calopipe
