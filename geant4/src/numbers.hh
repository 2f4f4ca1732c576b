// Which of a shower's hashed uniform numbers are used for what.
#pragma once

#include "contents.hh"

namespace calopipe {

// In order: one number for each cell, a block of kBlock numbers for each cell, kLayerBlocks blocks for each layer, and
// kDraws numbers for each layer.
class HashedNumbers {
 public:
  HashedNumbers(const Mesh& mesh, const std::array<int, 2>& keys) : mesh_(mesh), keys_(keys) {}

  // One number for each cell, which decides whether the cell is hit.
  void of_cells(int layer, const std::vector<int>& places, Numbers& into) const {
    into.resize(places.size());
    for (std::size_t k = 0; k < places.size(); ++k) {
      hashed_uniform(keys_.data(), static_cast<unsigned>(layer * mesh_.places + places[k]), 1, into.data() + k);
    }
  }
  // kBlock numbers for a cell that is hit.
  void of_hit(int layer, int place, float* into) const {
    blocks((mesh_.layers + layer) * mesh_.places + place, kBlock, into);
  }
  // kBlock numbers for a layer: for its share (`which` is 0), its even cells (1) or its odd cells (2).
  void of_layer(int layer, int which, float* into) const {
    blocks(2 * mesh_.layers * mesh_.places + kLayerBlocks * layer + which, kBlock, into);
  }
  // kDraws numbers that propose cells of a layer.
  void of_proposals(int layer, float* into) const {
    const int taken = mesh_.layers * (2 * mesh_.places + kLayerBlocks) * kBlock;
    blocks(layer + taken / kDraws + 1, kDraws, into);
  }

 private:
  void blocks(int counter, int count, float* into) const {
    hashed_uniform(keys_.data(), static_cast<unsigned>(counter), count, into);
  }

  const Mesh& mesh_;
  const std::array<int, 2> keys_;
};

}  // namespace calopipe
