// What a shower's totals are, and what follows from them alone.
#pragma once

#include "plan.hh"

namespace calopipe {

struct Totals {
  Numbers values, there;  // `there` (layers) is 1 of layers that hold energy, and 0 of others
};

Totals drawn_totals(const Model::Contents& model, const Asked& asked, const float* noise);
// The energies of the layers.
Numbers layer_energies(const Totals& totals, float energy_gev);
// Where the axis of this offset meets the layers, in cells.
std::vector<std::array<float, 2>> axis_of(const Model::Contents& model, const Asked& asked, const float* offset);
// Where in its cell the axis meets a layer; in rings where in the calorimeter.
std::array<float, 2> within(const Mesh& mesh, const std::array<float, 2>& axis, int layer);

}  // namespace calopipe
