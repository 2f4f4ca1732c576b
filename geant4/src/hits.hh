// The hits of a colour in a layer, and their deposits: `LayerDrawing._deposits` of the model in Python.
#pragma once

#include "cells.hh"
#include "numbers.hh"
#include "proposals.hh"
#include "shared_energy.hh"

namespace calopipe {

// What the cells of a colour share: the `energy` that is promised to them, the `number` of their hits, and the `start`
// of HitSampling.
struct Shared {
  float energy, number, start;
};

class Hits {
 public:
  explicit Hits(const Model::Contents& model) : model_(model) {}

  // Draws deposits in some of the `cells`. They sum to the promised energy, except for a single hit. Returns their sum.
  float draw(int colour, const LayerFrame& frame, const Cells& cells, const Proposals& proposals,
             const HashedNumbers& numbers, const Shared& shared, Drawn& into);

 private:
  void scores(const CellDensity& density, const LayerFrame& frame, const Cells& cells, const HashedNumbers& numbers,
              Numbers& into);

  const Model::Contents& model_;
  HitSampling sampling_;
  Numbers chance_, uniform_;  // of each cell
  std::vector<std::size_t> hits_;
  Numbers features_, outputs_;  // of kRows hits
};

}  // namespace calopipe
