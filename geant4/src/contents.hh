// What an exported file holds, as the sampler uses it. Energies are in units of 0.02 GeV, lengths in units of the
// card's `cell_mm`, depths in units of its `layer_pitch_mm`, as in training/models/autoregressive.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "calopipe/showers.hh"
#include "kernels.hh"

namespace calopipe {

constexpr float kUnitGev = 0.02f, kPi = 3.14159265358979323846f;
constexpr int kSums = 16, kBudgets = 6, kMoments = 4, kOffsets = 4, kAround = 25, kSharesBefore = 2;
constexpr int kLast = kBudgets + kMoments;     // the last totals, whose means are told more than the labels
constexpr int kLayersBefore = 4, kToCome = 3;  // what a layer's total is told of the layers before it and after it
constexpr int kHats = 6, kShape = 2 + kHats;   // where a layer is; where among the layers a shower's energy is
constexpr int kPlaceNumbers = 16, kNear = 9;
constexpr int kEnergies = 9, kScores = 129, kMeanTerms = 11, kScaleTerms = 6;
constexpr float kScoreReach = 4.0f, kScoreStep = 2 * kScoreReach / (kScores - 1);
constexpr int kAlone = 1;  // so many hits of a colour have an energy of their own
constexpr int kCases = 3, kDraws = 256, kFewestDraws = 32, kBlock = 4, kLayerBlocks = 3;

inline std::size_t size(int count) { return static_cast<std::size_t>(count); }

using Ladder = std::vector<std::array<Dense, 3>>;  // a network for each step

// One network for all steps, of which each has biases of its own.
struct Chain {
  std::array<Dense, 3> layers;
  std::vector<std::array<Numbers, 2>> biases;  // of the first and the last
  std::vector<Numbers> where;
};

struct CellDensity {
  Dense context_in, context_out, cell_in, deposit;
  Numbers occupied;
  float occupied_bias;
  std::vector<Dense> hidden;
};

// Constants that training computed, by their names there.
struct Constants {
  float depth, radius_half, radius_most, deposit, least;
  Numbers log_energy, cos_theta, sin_phi;
  Numbers mean, scale, quantiles, mean_of_budgets, colouring, presence, blur_scale, blur_most, expected;
  Numbers odds, score, spectra, layer_cells, far_total, rate;
  std::array<Numbers, 2> context_mean, context_scale;
  std::vector<std::int32_t> far_table, core;
  int knots, entries, core_most;
};

// A cell: where it is, which ring, and what it measures.
struct Place {
  float x, y, ring, log_area;
};

struct Mesh {
  int layers, places, kinds;
  std::array<int, 2> shape, start, lattice;
  int rings;                 // of a layer at most; 0 of rectangular cells
  float unit;                // layers' pitch over the size of cells
  std::vector<Place> where;  // (kinds, places): layers of a kind have the same cells
  Numbers depth, per_unit, middle, levels;
  Numbers of_parity;          // (layers, 2): cells the sum of whose indices is even, and odd
  Numbers short_side, spare;  // of a layer's cells; half of what a side is longer, over it
  std::vector<std::int32_t> exists, kind, around, mirror, most;
  const Place& at(int layer, int place) const { return where[size(kind[size(layer)] * places + place)]; }
  // How much a layer's energy counts for the axis, in x and in y: the inverse square of its cells' sides.
  std::array<float, 2> precision(std::size_t layer) const {
    if (rings) return {1, 1};
    return {per_unit[2 * layer] * per_unit[2 * layer], per_unit[2 * layer + 1] * per_unit[2 * layer + 1]};
  }
  int lattice_places() const { return lattice[0] * lattice[1]; }
  int groups() const { return layers < 6 ? layers : 6; }
  // What the shares before and its place say of a cell.
  int of_place() const { return kSharesBefore + kPlaceNumbers + (rings ? shape[0] + rings : 0); }
  // What the share of the even cells is given of the cell that the axis meets.
  int of_met() const { return 4 + 2 * kNear + of_place(); }
};

struct Model::Contents {
  std::string fingerprint;
  std::vector<Layer> layers;
  double cell_mm, layer_pitch_mm;
  Range energy_gev, theta_rad;
  std::optional<Range> phi_rad;
  std::vector<int> particles;

  Mesh mesh;
  Constants constants;
  Ladder presence, others;
  Chain of_layers;
  std::array<std::array<Dense, 3>, 3> numbers;  // of place, slope and share
  std::array<std::array<Dense, 3>, 2> counts;   // of even and odd hits
  std::array<CellDensity, 2> cells;

  int more() const {  // terms of labels beside energy and theta
    const int kinds = static_cast<int>(particles.size());
    return (phi_rad ? 4 : 0) + (kinds > 1 ? 6 * (kinds - 1) : 0);
  }
  int totals() const { return mesh.layers + kOffsets + kLast; }
  int noise_numbers() const { return 3 * (totals() + kOffsets) + mesh.layers + 3; }
};

// Weights (places, knots) of linear interpolation between `knots`, both even over the same range.
std::vector<Numbers> interpolated(int places, int knots);

}  // namespace calopipe
