#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "layer.hh"

namespace calopipe {
namespace {

constexpr float kLastBelow1 = 1 - 0x1p-24f;  // a double below 1 may have been rounded to 1

std::string described(const Labels& labels) {
  return std::to_string(labels.energy_gev) + " GeV, theta " + std::to_string(labels.theta_rad) + " rad, phi " +
         std::to_string(labels.phi_rad) + " rad, PDG code " + std::to_string(labels.pdg);
}

}  // namespace

struct Sampler::Work {
  explicit Work(std::shared_ptr<const Model> of) : model(std::move(of)), drawing(model->contents()) {}

  std::shared_ptr<const Model> model;
  LayerDrawing drawing;
  Numbers noise;
};

Sampler::Sampler(std::shared_ptr<const Model> model) : work_(std::make_unique<Work>(std::move(model))) {}
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

void Sampler::draw(const Labels& labels, const float* noise, std::vector<Deposit>& deposits) {
  const Model::Contents& model = work_->model->contents();
  if (!work_->model->covers(labels)) {
    throw std::domain_error("the model was not trained for showers of " + described(labels) + "; leave them out");
  }
  Numbers& numbers = work_->noise;
  numbers.assign(noise, noise + model.noise_numbers());
  for (float& each : numbers) {
    if (!(each >= 0 && each <= 1)) {
      throw std::domain_error("noise must be from 0 to 1, found " + std::to_string(each));
    }
    each = std::min(each, kLastBelow1);
  }
  const Mesh& mesh = model.mesh;
  const Plan plan = drawn_plan(model, asked_of(model, labels), numbers.data());
  const float* rest = numbers.data() + numbers.size() - 3;
  const HashedNumbers hashed(mesh, {static_cast<int>(rest[0] * 0x1p24f), static_cast<int>(rest[1] * 0x1p24f)});
  work_->drawing.begin();
  const auto phi = static_cast<float>(labels.phi_rad);
  const bool left = rest[2] < 0.5f;
  const bool turned[2] = {model.phi_rad ? phi < 0 || (phi == 0 && left) : left,
                          static_cast<float>(labels.theta_rad) > 1.57079632679489661923f};
  deposits.clear();
  for (int layer = 0; layer < mesh.layers; ++layer) {
    const Drawn& drawn = work_->drawing.draw(layer, plan, hashed);
    for (std::size_t k = 0; k < drawn.place.size(); ++k) {
      if (!(drawn.value[k] > 0)) continue;
      int place = drawn.place[k];
      for (int axis = 0; axis < 2; ++axis) {
        if (turned[axis]) place = mesh.mirror[size((axis * mesh.layers + layer) * mesh.places + place)];
      }
      deposits.push_back({place / mesh.shape[1], place % mesh.shape[1], layer, drawn.value[k] * kUnitGev});
    }
  }
}

}  // namespace calopipe
