// What a shower's totals are, and what follows from them alone.
#pragma once

#include "plan.hh"

namespace calopipe {

struct Totals {
  Numbers values, there;  // `there` (layers) is 1 for layers that hold energy, and 0 for others
  float response() const { return values[there.size() - 1]; }  // log E_vis / E
};

Totals drawn_totals(const Model::Contents& model, const Asked& asked, const float* noise);
// The energies (layers), in units of 0.02 GeV.
Numbers layer_energies(const Totals& totals, float energy_gev);

}  // namespace calopipe
