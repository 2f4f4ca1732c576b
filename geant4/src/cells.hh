// The cells of a colour in a layer, and the features that their density has of them: `CellDensity` in Python.
#pragma once

#include "frame.hh"

namespace calopipe {

// The deposits of a layer as the networks see them: (places + 1) each, the last of which is none.
struct Image {
  Numbers scaled, share;  // their logarithms, and their shares of the layer's energy
  void clear(std::size_t places);
};

// To the second layer, the first is both layers before it.
struct Images {
  Image one, two;  // of the layer before, and of the one before that
  Numbers own;     // scaled, of this layer's even cells
};

// Adds deposits to an image of scaled ones.
void add_scaled(const Constants& of, const Drawn& drawn, Numbers& image);
// What the share of the even cells is given of the cell that the axis meets: `Mesh::of_met` numbers.
void known_of_met(const LayerFrame& frame, const Images& images, float* out);

class Cells {
 public:
  std::vector<int> places;      // that are looked at
  std::vector<Distance> where;  // of each
  const float* features_of(std::size_t cell) const { return features_.data() + cell * wide_; }

  // Computes them, given the `contexts` of the layer. `images.own` counts where the density has inputs for it.
  void evaluate(const LayerFrame& frame, const CellDensity& density, const Numbers& contexts, const Images& images);
  // The log odds of being hit.
  float log_odds(const LayerFrame& frame, const CellDensity& density, std::size_t cell) const;

 private:
  void share(const CellDensity& density, const Numbers& contexts);

  std::size_t wide_ = 0;
  Numbers features_, shared_, scratch_;
  Numbers values_;          // what is known of a block of cells (kRows, inputs)
  Numbers used_;            // the sum of the magnitudes of each input over the block
  std::vector<int> which_;  // inputs are not 0 in all cells of the block
};

}  // namespace calopipe
