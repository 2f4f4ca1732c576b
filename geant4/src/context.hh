// What the densities are given of a layer: `context` of the model in Python.
#pragma once

#include "frame.hh"

namespace calopipe {

// SUMS of all layers before, of the last of them, and of the one before that.
struct Before {
  Sums all{}, one{}, two{};
};

// `even` are those of the layer's even cells, which were promised so much energy; none for the context of these.
Numbers context(const Plan& plan, const LayerFrame& frame, const Before& before, const Sums* even = nullptr,
                float promised = 0);
// Adds what even cells are given of their share of the layer's energy.
void add_share(float logit, float energy, Numbers& contexts);
// Adds what cells are given of how many of their colour are hit, and of the energy that these are to hold together.
void add_count(float count, float energy, Numbers& contexts);
// The contexts as the networks of a colour want them: all of them, or the first ones.
void normalise(const Constants& of, int colour, const Numbers& contexts, Numbers& into);

}  // namespace calopipe
