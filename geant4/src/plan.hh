// The totals of a shower, and what they promise of its layers: `totals` and `context.plan` of the model in Python.
#pragma once

#include <array>
#include <vector>

#include "contents.hh"

namespace calopipe {

using Numbers = std::vector<float>;

// SUMS of training/models/autoregressive/frame.py, in their order.
enum Sum { kEnergy, kCells, kHits, kSquares, kBeyondHalf, kBeyondMost, kX, kY, kXX, kYY, kXDepth, kYDepth };
using Sums = std::array<float, kSums>;
using Budgets = std::array<float, kBudgets>;
constexpr std::array<Sum, kBudgets> kBudgetSums = {kCells, kHits, kBeyondHalf, kBeyondMost, kXX, kYY};
inline bool counted(int budget) { return budget < 2; }

// The labels of a shower as it is drawn: reflected, and their polynomials.
struct Asked {
  float energy_gev, theta, phi;
  Numbers terms, inputs;
  float slope_y, slope_x;  // of the particle, cells a layer
};

struct LayerPlan {
  float energy, depth, busy;
  float rest_energy, rest_mean, rest_variance;
  Budgets expected;
  std::array<float, 2> axis;
  Numbers promised;
};

struct Plan {
  float slope;
  Budgets budgets;
  std::vector<LayerPlan> layers;
};

Asked asked_of(const Model::Contents& model, const Labels& labels);
Plan drawn_plan(const Model::Contents& model, const Asked& asked, const float* noise);

// A number of the mixture of normals whose log weights, means and log widths are `outputs`; uniform and normal numbers
// decide.
float draw_mixture(const float* outputs, int components, float choice, float noise);
// One normal number of two uniform ones.
float box_muller(float one, float two);
float sigmoid(float x);
// The outputs of a network of three layers, of which the first two are followed by silu.
void perceptron(const std::array<Dense, 3>& layers, const float* in, Numbers& out);
// Adds the logarithms' normaliser: the log weights of so many components.
void log_softmax(float* values, int count);

}  // namespace calopipe
