// Which of a shower's hashed uniform numbers decide what.
#pragma once

#include "contents.hh"

namespace calopipe {

// First one number of each cell, then blocks of kBlock of each, kLayerBlocks of each layer, and kDraws of each layer.
class HashedNumbers {
 public:
  HashedNumbers(const Mesh& mesh, const std::array<int, 2>& keys) : mesh_(mesh), keys_(keys) {}

  // Of cells: which of them are hit.
  void of_cells(int layer, const std::vector<int>& places, Numbers& into) const {
    into.resize(places.size());
    for (std::size_t k = 0; k < places.size(); ++k) {
      hashed_uniform(keys_.data(), static_cast<unsigned>(layer * mesh_.places + places[k]), 1, into.data() + k);
    }
  }
  // Of a cell that is hit: kBlock numbers.
  void of_hit(int layer, int place, float* into) const {
    blocks((mesh_.layers + layer) * mesh_.places + place, kBlock, into);
  }
  // Of a layer: kBlock numbers of its share, of its even cells, of its odd ones.
  void of_layer(int layer, int which, float* into) const {
    blocks(2 * mesh_.layers * mesh_.places + kLayerBlocks * layer + which, kBlock, into);
  }
  // Of a layer: kDraws numbers that propose cells.
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
