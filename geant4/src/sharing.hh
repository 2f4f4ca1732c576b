// How the energy of a layer is shared between its colours and among the hits of each: `densities` of the Python model.
#pragma once

#include "contents.hh"

namespace calopipe {

constexpr float kReach = 9.2f;  // the logit kReach stands for the share 1, and -kReach for 0
// Draws the logit of the share of a layer's energy that its even cells are to hold, by kBlock uniform `numbers`. The
// `outputs` of a network are the log chances of kCases, and a mixture of normals.
float drawn_share(Numbers& outputs, int components, const float* numbers);
// The share that has this logit.
float share_of(float logit);
// Draws how many cells of a colour are hit, from 1 to `most`, where about `expected` are expected. It takes two uniform
// `numbers`. The `outputs` of a network are a mixture of logistic distributions.
float drawn_count(float expected, float most, const Numbers& outputs, int components, const float* numbers);

}  // namespace calopipe
