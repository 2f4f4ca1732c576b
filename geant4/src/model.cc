#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "reading.hh"

namespace calopipe {
namespace {

Range range(const Json& ends) { return {ends[0].as_number(), ends[1].as_number()}; }

std::unique_ptr<const Model::Contents> read(const std::string& path) {
  const TensorFile file(path);
  const Json identity = Json::parse(file.said("calopipe_export")), card = Json::parse(file.said("calopipe_card"));
  if (identity["kind"].as_string() != "calopipe.export" || identity["schema_version"].as_number() != 11) {
    throw std::runtime_error("the export of another version of calopipe");
  }
  if (file.said("calopipe_crc32") != std::to_string(file.checksum())) {
    throw std::runtime_error("its arrays are not those that were written; export it again");
  }
  auto found = std::make_unique<Model::Contents>();
  found->fingerprint = identity["model"].as_string();
  const Json& valid = card["valid_range"];
  found->energy_gev = range(valid["energy_gev"]);
  found->theta_rad = range(valid["theta_rad"]);
  if (valid.has("phi_rad")) found->phi_rad = range(valid["phi_rad"]);
  if (valid.has("particle")) {
    for (const Json& each : valid["particle"].as_array()) found->particles.push_back(whole(each));
  }
  read_geometry(card["geometry"], *found);
  read_mesh(file, found->mesh);
  read_constants(file, *found, found->constants);
  read_networks(file, *found);
  return found;
}

// How far a label may lie outside, as a part of its range: see `training.models.showers.allowed`.
constexpr double kBeyond = 1e-3;

bool between(double value, float low, float high) {
  const auto given = static_cast<float>(value);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return given >= std::nextafter(low, -kInfinity) && given <= std::nextafter(high, kInfinity);
}

bool inside(double value, Range range) {
  const auto low = static_cast<float>(range.low), high = static_cast<float>(range.high);
  const float beyond = static_cast<float>(kBeyond) * (high - low);
  return between(value, low - beyond, high + beyond);
}

bool energy_inside(double value, Range range) {
  const auto low = static_cast<float>(range.low), high = static_cast<float>(range.high);
  const auto factor = static_cast<float>(std::pow(static_cast<double>(high) / static_cast<double>(low), kBeyond));
  return between(value, low / factor, high * factor);
}

}  // namespace

std::vector<std::vector<float>> interpolated(int places, int knots) {
  std::vector<std::vector<float>> found(size(places), std::vector<float>(size(knots)));
  const double step = places > 1 ? static_cast<double>(knots - 1) / (places - 1) : 0.0;
  for (int place = 0; place < places; ++place) {
    for (int knot = 0; knot < knots; ++knot) {
      found[size(place)][size(knot)] = static_cast<float>(std::max(1 - std::abs(place * step - knot), 0.0));
    }
  }
  return found;
}

Model::Model(std::unique_ptr<const Contents> contents) : contents_(std::move(contents)) {}
Model::~Model() = default;

std::shared_ptr<const Model> Model::load(const std::string& file) {
  try {
    return std::shared_ptr<const Model>(new Model(read(file)));
  } catch (const std::exception& error) {
    throw std::runtime_error(file + ": no model of showers (" + error.what() +
                             "); write one by `python -m training export --model DIR --output FILE.safetensors`");
  }
}

const std::string& Model::fingerprint() const { return contents_->fingerprint; }
const std::vector<Layer>& Model::layers() const { return contents_->layers; }
bool Model::in_rings() const { return contents_->mesh.rings > 0; }

std::array<double, 3> Model::position_mm(int x, int y, int layer) const {
  const Mesh& mesh = contents_->mesh;
  const bool known = x >= 0 && y >= 0 && layer >= 0 && x < mesh.shape[0] && y < mesh.shape[1] && layer < mesh.layers;
  const int place = known ? x * mesh.shape[1] + y : 0;
  if (!known || !mesh.exists[size(layer * mesh.places + place)]) {
    throw std::out_of_range("the calorimeter has no such cell");
  }
  const Place& at = mesh.at(layer, place);
  return {at.x * contents_->cell_mm, at.y * contents_->cell_mm, contents_->layers[size(layer)].middle_mm};
}

Range Model::energy_gev() const { return contents_->energy_gev; }
Range Model::theta_rad() const { return contents_->theta_rad; }
std::optional<Range> Model::phi_rad() const { return contents_->phi_rad; }
const std::vector<int>& Model::particles() const { return contents_->particles; }

bool Model::covers(const Labels& labels) const {
  const Contents& of = *contents_;
  bool kind = of.particles.size() < 2;
  for (const int each : of.particles) kind = kind || each == labels.pdg;
  return kind && energy_inside(labels.energy_gev, of.energy_gev) && inside(labels.theta_rad, of.theta_rad) &&
         (!of.phi_rad || inside(labels.phi_rad, *of.phi_rad));
}

int Model::noise_numbers() const { return contents_->noise_numbers(); }

}  // namespace calopipe
