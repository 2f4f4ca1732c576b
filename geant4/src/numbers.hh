// Which of a shower's hashed uniform numbers decide what.
#pragma once

#include "contents.hh"

namespace calopipe {

class HashedNumbers {
 public:
  HashedNumbers(const Mesh& mesh, const std::array<int, 2>& keys) : mesh_(mesh), keys_(keys) {}

  // Two blocks of kBlock numbers of each cell.
  void of_cell(int layer, int place, int block, float* out) const {
    hashed_uniform(keys_.data(),
                   2u * static_cast<unsigned>(layer * mesh_.places + place) + static_cast<unsigned>(block), kBlock,
                   out);
  }
  // Four blocks of kBlock numbers of each layer.
  void of_layer(int layer, int block, float* out) const {
    const int taken = 2 * mesh_.layers * mesh_.places;
    hashed_uniform(keys_.data(), static_cast<unsigned>(taken + 4 * layer + block), kBlock, out);
  }
  // kDraws numbers of each layer.
  void of_proposals(int layer, float* out) const {
    const int taken = 2 * mesh_.layers * (mesh_.places + 2) * kBlock;
    hashed_uniform(keys_.data(), static_cast<unsigned>(layer + taken / kDraws + 1), kDraws, out);
  }

 private:
  const Mesh& mesh_;
  const std::array<int, 2> keys_;
};

}  // namespace calopipe
