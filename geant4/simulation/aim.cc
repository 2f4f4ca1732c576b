#include "aim.hh"

#include <cmath>
#include <random>

namespace calopipe {
namespace {

constexpr int showers_each = 64;
constexpr double perpendicular = 1e-3;  // smaller slopes say nothing about the depth

std::vector<double> ends(const Range& range) {
  if (range.low == range.high) return {range.low};
  return {range.low, range.high};
}

}  // namespace

double aim_mm(const std::shared_ptr<const Model>& model, const std::vector<double>& depth_mm) {
  Sampler sampler(model);
  std::mt19937 engine(1);  // not the run's engine, so the showers of the run do not change
  std::vector<float> noise(static_cast<std::size_t>(model->noise_numbers()));
  std::vector<Deposit> deposits;
  Labels labels;
  labels.energy_gev = std::sqrt(model->energy_gev().low * model->energy_gev().high);
  labels.pdg = model->particles().empty() ? 0 : model->particles().front();
  double product = 0, square = 0;
  for (const double phi : model->phi_rad() ? ends(*model->phi_rad()) : std::vector<double>{0.0}) {
    for (const double theta : ends(model->theta_rad())) {
      labels.phi_rad = phi;
      labels.theta_rad = theta;
      const double slope_x = std::tan(phi), slope_y = 1 / (std::tan(theta) * std::cos(phi));
      if (std::hypot(slope_x, slope_y) < perpendicular) continue;
      double energy = 0, x = 0, y = 0;  // sums over deposits, moved along the particle's direction to the front
      for (int shower = 0; shower < showers_each; ++shower) {
        for (float& number : noise) number = static_cast<float>(engine() >> 8) * 0x1p-24F;
        sampler.draw(labels, noise.data(), deposits);
        for (const Deposit& deposit : deposits) {
          const auto place = model->position_mm(deposit.x, deposit.y, deposit.layer);
          const double depth = depth_mm[static_cast<std::size_t>(deposit.layer)];
          energy += deposit.energy_gev;
          x += deposit.energy_gev * (place[0] - slope_x * depth);
          y += deposit.energy_gev * (place[1] - slope_y * depth);
        }
      }
      if (energy == 0) continue;
      product -= (slope_x * x + slope_y * y) / energy;
      square += slope_x * slope_x + slope_y * slope_y;
    }
  }
  return square > 0 ? product / square : 0;
}

}  // namespace calopipe
