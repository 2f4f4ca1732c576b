// Small networks of one row, and numbers drawn of what they say.
#pragma once

#include <array>

#include "contents.hh"

namespace calopipe {

// The outputs of a network of three layers, of which the first two are followed by silu.
void perceptron(const std::array<Dense, 3>& layers, const float* in, Numbers& out);
// Adds the logarithms' normaliser: the log weights of so many components.
void log_softmax(float* values, int count);
// A number of the mixture of normals whose log weights, means and log widths are `outputs`; uniform and normal numbers
// decide.
float draw_mixture(const float* outputs, int components, float choice, float noise);
// One normal number of two uniform ones.
float box_muller(float one, float two);
float sigmoid(float x);

}  // namespace calopipe
