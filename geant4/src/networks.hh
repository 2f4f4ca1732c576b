// Small networks for one row of inputs, and numbers drawn by their outputs.
#pragma once

#include <array>

#include "contents.hh"

namespace calopipe {

// The outputs of a network of three layers, of which the first two are followed by silu.
void perceptron(const std::array<Dense, 3>& layers, const float* in, Numbers& out);
// Normalises the log weights of `count` components, in place: the weights then sum to 1.
void log_softmax(float* values, int count);
// Draws a number from a mixture, whose log weights, means and log widths are `outputs`. The uniform number `choice`
// chooses the component. `noise` is a number of the component's standard distribution, such as a normal number.
float draw_mixture(const float* outputs, int components, float choice, float noise);
// One normal number from two uniform numbers.
float box_muller(float one, float two);
float sigmoid(float x);

}  // namespace calopipe
