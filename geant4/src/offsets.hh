// Where in its cells the axis is: `totals` of the model in Python.
#pragma once

#include "copula.hh"

namespace calopipe {

class Offsets {
 public:
  Offsets(const Model::Contents& model, const Asked& asked, const Copula& copula);

  // Where in their cells the axis meets the layers: sums (4, groups) of waves with the period of a cell.
  Numbers phases(const Numbers& values, const Numbers& energy) const;
  // Takes the noise away from the offsets among the totals `values`: first from the place, then from the slope.
  // Densities draw this noise by `uniform`, 3 kOffsets numbers.
  void sharpen(Numbers& values, const Numbers& energy, const float* uniform);

 private:
  void give(const Numbers& values, const Numbers& energy, const Numbers& waves,
            const std::vector<std::array<float, 2>>& axis, std::size_t direction);

  const Model::Contents& model_;
  const Mesh& mesh_;
  const Asked& asked_;
  const Copula& copula_;
  std::vector<Numbers> hats_;
  Numbers blur_, inputs_, outputs_;
};

}  // namespace calopipe
