// Showers of a trained likelihood model, one at a time, without TensorFlow.
//
// `python -m training export --model DIR --output FILE.safetensors` writes the file that `Model::load` reads. Lengths
// are in mm, energies in GeV, angles in rad, as in the model's card.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace calopipe {

// The labels that a shower is drawn for. The particle moves along (sin theta sin phi, cos theta, sin theta cos phi),
// where the third component points into the depth. Normal incidence is theta = pi/2 and phi = 0. A model of showers of
// one azimuth ignores `phi_rad`. A model of showers of one kind of particle ignores `pdg`.
struct Labels {
  double energy_gev = 0;
  double theta_rad = 0;
  double phi_rad = 0;
  int pdg = 0;
};

// The energy in a cell. `x` and `y` are the cell's indices along x and y, or in angle and radius. Indices and layers
// count from 0.
struct Deposit {
  int x, y, layer;
  float energy_gev;
};

// One layer; layers are in the order of depth. `cells` are the numbers of cells along x and y, or in angle and radius.
// Rectangular cells have `size_mm`. Rings have `r_edges_mm`, cells[1] + 1 radii, and their angles begin at -pi.
struct Layer {
  double thickness_mm;
  double middle_mm;  // the depth of its middle, from the front of the calorimeter
  std::array<int, 2> cells;
  std::array<double, 2> size_mm;
  std::vector<double> r_edges_mm;
};

// The least and the largest value of a label in the training.
struct Range {
  double low, high;
};

// A trained model. It does not change, so threads can share one.
class Model {
 public:
  // Throws std::runtime_error, in one line, where `file` cannot be read or is no such export.
  static std::shared_ptr<const Model> load(const std::string& file);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::string& fingerprint() const;  // names the model by its weights, as its card does
  const std::vector<Layer>& layers() const;
  bool in_rings() const;
  // The middle of a cell: x and y from the calorimeter's axis, and the depth from its front. A cell that goes all round
  // the axis has its middle on the axis. Throws std::out_of_range if there is no such cell.
  std::array<double, 3> position_mm(int x, int y, int layer) const;

  Range energy_gev() const;
  Range theta_rad() const;
  std::optional<Range> phi_rad() const;       // none: all showers have the azimuth 0
  const std::vector<int>& particles() const;  // PDG codes of the kinds, rising; empty: kinds were not recorded
  // Whether the model was trained for these labels. A label may lie outside its range by a thousandth of the range (the
  // energy: of the range of its logarithm).
  bool covers(const Labels& labels) const;

  int noise_numbers() const;  // how many numbers a shower is drawn from

  struct Contents;
  const Contents& contents() const { return *contents_; }

 private:
  explicit Model(std::unique_ptr<const Contents> contents);
  std::unique_ptr<const Contents> contents_;
};

// Draws showers of one model. A sampler owns buffers, so each thread needs its own sampler.
class Sampler {
 public:
  explicit Sampler(std::shared_ptr<const Model> model);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  // Draws the shower with these labels from `noise`: Model::noise_numbers() independent numbers, uniform from 0 to 1.
  // `deposits` is replaced by the deposits of the cells that hold energy, layer by layer. Equal labels and noise give
  // equal showers. Throws std::domain_error, in one line, if the model does not cover the labels, or if a number of the
  // noise is not from 0 to 1.
  void draw(const Labels& labels, const float* noise, std::vector<Deposit>& deposits);

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

}  // namespace calopipe
