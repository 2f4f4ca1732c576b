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
constexpr int kLast = kBudgets + kMoments;     // the last totals; their means depend on more than the labels
constexpr int kLayersBefore = 4, kToCome = 3;  // inputs of a layer's total, from the layers before and after it
constexpr int kHats = 6, kShape = 2 + kHats;   // numbers for where a layer is; for where along the layers the energy is
constexpr int kPlaceNumbers = 16, kNear = 9;
constexpr int kEnergies = 9, kScores = 129, kMeanTerms = 11, kScaleTerms = 6;
constexpr float kScoreReach = 4.0f, kScoreStep = 2 * kScoreReach / (kScores - 1);
constexpr int kAlone = 1;  // at most so many hits of a colour in a layer have their own energy, not a shared one
constexpr int kCases = 3, kDraws = 256, kFewestDraws = 32, kBlock = 4, kLayerBlocks = 3;

inline std::size_t size(int count) { return static_cast<std::size_t>(count); }

using Ladder = std::vector<std::array<Dense, 3>>;  // a network for each number that is drawn

// One network for the totals of all layers but the last. Each total has its own biases.
struct Chain {
  std::array<Dense, 3> layers;
  std::vector<std::array<Numbers, 2>> biases;  // of layers[0] and layers[2], for each total
  std::vector<Numbers> where;                  // for each total: where its layer is, kHats numbers
};

struct CellDensity {
  Dense context_in, context_out, cell_in, deposit;
  Numbers occupied;
  float occupied_bias;
  std::vector<Dense> hidden;
};

// Constants that training computed, by their names in training/models/autoregressive/constants.py.
struct Constants {
  float depth, radius_half, radius_most, deposit, least;
  Numbers log_energy, cos_theta, sin_phi;
  Numbers mean, scale, quantiles, mean_of_budgets, colouring, presence, blur_scale, blur_most, expected;
  Numbers odds, score, spectra, layer_cells, far_total, rate;
  std::array<Numbers, 2> context_mean, context_scale;
  std::vector<std::int32_t> far_table, core;
  int knots, entries, core_most;
};

// A cell: its middle; the mean radius of a cell that goes round the axis, else 0; the log of its area over the mean.
struct Place {
  float x, y, ring, log_area;
};

struct Mesh {
  int layers, places, kinds;
  std::array<int, 2> shape, start, lattice;
  int rings;                 // of a layer, at most; 0 if cells are rectangular
  float unit;                // the card's `layer_pitch_mm` over its `cell_mm`
  std::vector<Place> where;  // (kinds, places): layers of a kind have the same cells
  Numbers depth, per_unit, middle, levels;
  Numbers of_parity;          // (layers, 2): how many cells have indices with an even sum, and with an odd sum
  Numbers short_side, spare;  // (layers), the shorter side of cells; (layers, 2), half the excess of a side, over it
  std::vector<std::int32_t> exists, kind, around, mirror, most;
  const Place& at(int layer, int place) const { return where[size(kind[size(layer)] * places + place)]; }
  // How much a layer's energy counts for the axis, in x and in y: the inverse square of its cells' sides; 1 in rings.
  std::array<float, 2> precision(std::size_t layer) const {
    if (rings) return {1, 1};
    return {per_unit[2 * layer] * per_unit[2 * layer], per_unit[2 * layer + 1] * per_unit[2 * layer + 1]};
  }
  int lattice_places() const { return lattice[0] * lattice[1]; }
  int groups() const { return layers < 6 ? layers : 6; }
  // How many inputs of a cell describe its place, and the shares of the layers before in the cell at this place.
  int of_place() const { return kSharesBefore + kPlaceNumbers + (rings ? shape[0] + rings : 0); }
  // How many inputs of the network for the share of the even cells are about the cell that the axis meets.
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
  std::array<std::array<Dense, 3>, 3> numbers;  // networks for place, slope and share
  std::array<std::array<Dense, 3>, 2> counts;   // networks for the numbers of even and of odd hits
  std::array<CellDensity, 2> cells;

  int more() const {  // how many terms the labels other than energy and theta have
    const int kinds = static_cast<int>(particles.size());
    return (phi_rad ? 4 : 0) + (kinds > 1 ? 6 * (kinds - 1) : 0);
  }
  int totals() const { return mesh.layers + kOffsets + kLast; }
  int noise_numbers() const { return 3 * (totals() + kOffsets) + mesh.layers + 3; }
};

// Weights (places, knots) of linear interpolation between `knots`. Places and knots are evenly spaced over one range.
std::vector<Numbers> interpolated(int places, int knots);

}  // namespace calopipe
