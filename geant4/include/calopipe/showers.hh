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

// What a shower is asked for with. The particle moves along (sin theta sin phi, cos theta, sin theta cos phi), the
// third being into the depth, so that theta = pi/2 and phi = 0 is normal incidence. A model whose showers have one
// azimuth, or one kind of particle, does not look at these.
struct Labels {
  double energy_gev = 0;
  double theta_rad = 0;
  double phi_rad = 0;
  int pdg = 0;
};

// The energy in a cell: its indices along x and y, or in angle and radius, and its layer, all from 0.
struct Deposit {
  int x, y, layer;
  float energy_gev;
};

// One layer, the first to be hit first: `cells` along x and y, or in angle and radius. Rectangular cells have a size,
// rings the cells[1] + 1 radii between them; their angles begin at -pi.
struct Layer {
  double thickness_mm;
  double middle_mm;  // of its depth, from the front of the calorimeter
  std::array<int, 2> cells;
  std::array<double, 2> size_mm;
  std::vector<double> r_edges_mm;
};

// The least and the largest value of a label in the training.
struct Range {
  double low, high;
};

// A trained model. It does not change, so that threads share one.
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
  // The middle of a cell: x and y from the calorimeter's axis, and the depth from its front. A cell that goes once
  // round the axis has its middle on it. Throws std::out_of_range where there is no such cell.
  std::array<double, 3> position_mm(int x, int y, int layer) const;

  Range energy_gev() const;
  Range theta_rad() const;
  std::optional<Range> phi_rad() const;       // none: all showers have the azimuth 0
  const std::vector<int>& particles() const;  // kinds by their PDG codes, rising; none: they are not recorded
  // Whether the model was trained for these labels. One may lie outside by a thousandth of its range.
  bool covers(const Labels& labels) const;

  int noise_numbers() const;  // that a shower is made of

  struct Contents;
  const Contents& contents() const { return *contents_; }

 private:
  explicit Model(std::unique_ptr<const Contents> contents);
  std::unique_ptr<const Contents> contents_;
};

// Draws showers of one model. It owns buffers: each thread needs one of its own.
class Sampler {
 public:
  explicit Sampler(std::shared_ptr<const Model> model);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  // The shower with these labels of `noise`, Model::noise_numbers() independent numbers that are uniform from 0 to 1.
  // `deposits` are replaced by those of the cells that hold energy, layer by layer. Equal labels and noise give equal
  // showers. Throws std::domain_error, in one line, for labels that the model does not cover and for other noise.
  void draw(const Labels& labels, const float* noise, std::vector<Deposit>& deposits);

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

}  // namespace calopipe
