// How the energy of a layer is shared between its colours and among the hits of each: `densities` of the Python model.
#pragma once

#include "contents.hh"

namespace calopipe {

constexpr float kReach = 9.2f;  // the logit of all; that of nothing is less than 0
// The logit of the share of a layer's energy that its even cells are to hold, drawn by kBlock uniform numbers of what a
// network says: the log chances of kCases, and a mixture of normals.
float drawn_share(Numbers& outputs, int components, const float* numbers);
// The share of such a logit: nothing or all at its ends.
float share_of(float logit);
// How many cells of a colour are hit, from one to `most`, where about so many are expected; drawn by uniform numbers,
// of which it takes two, of what a network says: a mixture of logistic distributions.
float drawn_count(float expected, float most, const Numbers& outputs, int components, const float* numbers);

}  // namespace calopipe
