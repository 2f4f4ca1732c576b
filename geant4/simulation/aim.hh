// Where a model's showers lie in its window of cells.
#pragma once

#include <memory>
#include <vector>

#include "calopipe/showers.hh"

namespace calopipe {

// Showers of a training may enter anywhere, as long as their particles cross the middle of the window at one depth: the
// shower's maximum, often. That depth in mm, from 64 showers at each end of the ranges of the angles: the particle's
// straight line through it fits their deposits best. `depth_mm` are the depths of the deposits by layer. 0 where all
// showers are perpendicular, and the depth does not matter.
double aim_mm(const std::shared_ptr<const Model>& model, const std::vector<double>& depth_mm);

}  // namespace calopipe
