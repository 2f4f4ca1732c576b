// The totals of a shower, and what they promise of its layers: `totals` and `context.plan` of the model in Python.
#pragma once

#include <array>
#include <vector>

#include "contents.hh"

namespace calopipe {

using Budgets = std::array<float, kBudgets>;
inline bool counted(int budget) { return budget < 2; }

// The labels of a shower as it is drawn, after reflections, and polynomials of these labels.
struct Asked {
  float energy_gev, theta, phi;
  Numbers terms, inputs;
  float slope_y, slope_x;  // of the particle, cells a layer
};

// The energy of a layer and of all layers after it, where each layer counts by a weight: this layer's weight, the
// weighted energy, and the mean and variance of its depth.
struct Rest {
  float weight, energy, mean, variance;
};

struct LayerPlan {
  float energy, energy_before, depth, cells;  // `cells`: how many are expected to be hit
  std::array<Rest, 3> rest;                   // by three weights: 1, and those of the axis in x and in y
  Budgets expected;
  std::array<float, 2> axis;
  Numbers inputs;
};

struct Plan {
  float slope;
  Budgets budgets;
  std::array<float, kMoments> moments;
  std::vector<LayerPlan> layers;
};

Asked asked_of(const Model::Contents& model, const Labels& labels);
Plan drawn_plan(const Model::Contents& model, const Asked& asked, const float* noise);

}  // namespace calopipe
