// The cells of one colour in a layer, and their features in the density of cells: `CellDensity` in Python.
#pragma once

#include "frame.hh"

namespace calopipe {

// The deposits of a layer as the networks see them, (places + 1) each. The last place stands for no cell.
struct Image {
  Numbers scaled, share;  // log(1 + deposit / median deposit), and shares of the layer's energy
  void clear(std::size_t places);
};

// The images that cells of a layer see. For the second layer, the first one stands for both layers before.
struct Images {
  Image one, two;  // of the layer before, and of the layer before that
  Numbers own;     // of this layer's even cells, scaled
};

// Adds the deposits `drawn`, scaled, to an image.
void add_scaled(const Constants& of, const Drawn& drawn, Numbers& image);
// Writes to `out` what the network for the share of the even cells is told of the cell that the axis meets:
// `Mesh::of_met` numbers.
void known_of_met(const LayerFrame& frame, const Images& images, float* out);

class Cells {
 public:
  std::vector<int> places;      // of the cells that are looked at
  std::vector<Distance> where;  // `LayerFrame::seen` of each
  const float* features_of(std::size_t cell) const { return features_.data() + cell * wide_; }

  // Computes `where` and the features of the `places`, given the `contexts` of the layer. `images.own` is used only if
  // the density has inputs for it, as that of odd cells has.
  void evaluate(const LayerFrame& frame, const CellDensity& density, const Numbers& contexts, const Images& images);
  // The log odds that the cell is hit.
  float log_odds(const LayerFrame& frame, const CellDensity& density, std::size_t cell) const;

 private:
  void share(const CellDensity& density, const Numbers& contexts);

  std::size_t wide_ = 0;
  Numbers features_, shared_, scratch_;
  Numbers values_;          // what is known of a block of cells (kRows, inputs)
  Numbers used_;            // the sum of the magnitudes of each input over the block
  std::vector<int> which_;  // the inputs that are not 0 in at least one cell of the block
};

}  // namespace calopipe
