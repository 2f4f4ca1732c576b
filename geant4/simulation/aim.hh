// Where a model's showers lie in its window of cells.
#pragma once

#include <memory>
#include <vector>

#include "calopipe/showers.hh"

namespace calopipe {

// The particles of a training may enter anywhere, but all cross the middle of the window at one depth, often that of
// the shower's maximum. Returns this depth in mm: the particles' straight lines through the middle at this depth fit
// the deposits of showers best. The model draws 64 showers at each end of the ranges of the angles. `depth_mm` are the
// depths of the deposits by layer. Returns 0 if all showers are perpendicular; the depth then does not matter.
double aim_mm(const std::shared_ptr<const Model>& model, const std::vector<double>& depth_mm);

}  // namespace calopipe
