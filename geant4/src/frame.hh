// The axis of a shower, and the cells of a layer about this axis: `frame` and `cells` of the model in Python.
#pragma once

#include <algorithm>

#include "plan.hh"

namespace calopipe {

// SUMS of training/models/autoregressive/frame.py, in their order.
enum Sum {
  kEnergy,
  kCells,
  kHits,
  kSquares,
  kBeyondHalf,
  kBeyondMost,
  kX,
  kY,
  kXX,
  kYY,
  kXDepth,
  kYDepth,
  kNearX,
  kNearY,
  kNearXDepth,
  kNearYDepth,
};
using Sums = std::array<float, kSums>;
using Distance = std::array<float, 4>;  // from the axis: dx, dy, ring, radius

constexpr float kHit = 3e-4f / kUnitGev;

// Deposits of one layer, in units of 0.02 GeV.
struct Drawn {
  std::vector<int> place;
  Numbers value;
};

// Where the axis with this `offset` (kOffsets numbers) meets the layers, in units of `cell_mm`.
std::vector<std::array<float, 2>> axis_of(const Model::Contents& model, const Asked& asked, const float* offset);
// Where in its cell the axis meets a layer, from -1/2 to 1/2. In rings: where in the calorimeter, cut at 2.
std::array<float, 2> within(const Mesh& mesh, const std::array<float, 2>& axis, int layer);
inline float clip(float value, float most) { return std::clamp(value, -most, most); }

// One layer of a shower.
struct LayerFrame {
  LayerFrame(const Model::Contents& model, const Plan& plan, int layer);

  Distance distance(int place) const;  // in units of `cell_mm`
  Distance seen(int place) const;      // as the densities see it: `Mesh.seen` in Python
  // The number of a `table` (layers, knots) for this layer at this radius.
  float prior(const Numbers& table, float radius) const;
  // Writes a cell's place as inputs of the densities: kPlaceNumbers and, in rings, which sector and ring it is of.
  void place_numbers(int place, const Distance& distance, float* out) const;
  // The places of the cells around a cell: kAround in this layer, in the layer before, and in the layer before that.
  const int* around(int place) const {
    return mesh.around.data() + (mesh.kind[size(layer)] * mesh.places + place) * 3 * kAround;
  }
  Sums sums(const Drawn& drawn) const;
  // How many cells of a colour the layer has. Even cells, colour 0, have the colour of the cell that the axis meets, as
  // on a chessboard. Odd cells, colour 1, have the other.
  float most(int colour) const { return mesh.of_parity[size(2 * layer + ((met[0] + met[1] + colour) & 1))]; }

  const Mesh& mesh;
  const Constants& of;
  const int layer;
  const LayerPlan& plan;
  const float slope;
  std::array<int, 2> met;  // the indices of the cell that the axis meets; it may be outside the calorimeter
  int met_place;           // the place of this cell, or of the nearest cell inside
};

}  // namespace calopipe
