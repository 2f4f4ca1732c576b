// Which cells of a colour in a layer are hit, and their deposits: `LayerDrawing._deposits` and `shared_energy` in
// Python.
#pragma once

#include "cells.hh"
#include "numbers.hh"
#include "proposals.hh"

namespace calopipe {

class Hits {
 public:
  explicit Hits(const Model::Contents& model) : model_(model), of_(model.constants) {}

  // Deposits of some of the `cells`, which sum to the `energy`, given the `contexts` of the layer.
  void draw(int colour, const LayerFrame& frame, const Cells& cells, const Proposals& proposals,
            const HashedNumbers& numbers, const Numbers& contexts, float energy, Drawn& into);

 private:
  std::size_t kept(int colour, int layer, const Cells& cells, const HashedNumbers& numbers, const Numbers& contexts,
                   float energy);
  std::array<double, kCounts> independent() const;
  void deposit(const CellDensity& density, const LayerFrame& frame, const Cells& cells, std::size_t cell,
               const HashedNumbers& numbers, Drawn& into);
  void stretch(float energy, Numbers& values) const;

  const Model::Contents& model_;
  const Constants& of_;
  Numbers chance_, drawn_;  // of each cell to be hit; kBlock numbers of each that decide it
  Numbers free_;            // how much each deposit may change
  Numbers outputs_;
};

// The deposits scaled to sum to `energy`, and none of less than the least.
void scale(const Constants& of, float energy, Numbers& values);

}  // namespace calopipe
