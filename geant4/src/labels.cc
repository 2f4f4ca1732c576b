#include <algorithm>
#include <cmath>

#include "plan.hh"

namespace calopipe {

Asked asked_of(const Model::Contents& model, const Labels& labels) {
  Asked found;
  const Mesh& mesh = model.mesh;
  const Constants& of = model.constants;
  const auto theta = static_cast<float>(labels.theta_rad);
  found.energy_gev = static_cast<float>(labels.energy_gev);
  found.theta = std::min(theta, kPi - theta);
  found.phi = model.phi_rad ? static_cast<float>(labels.phi_rad) : 0.0f;
  if (!mesh.rings) found.phi = std::abs(found.phi);
  const float e = (std::log(found.energy_gev) - of.log_energy[0]) / of.log_energy[1];
  const float a = (std::cos(found.theta) - of.cos_theta[0]) / of.cos_theta[1];
  found.terms = {1, e, a, e * e, e * a, a * a, e * e * e, e * e * a, e * (a * a), a * a * a, (a * a) * (a * a)};
  if (model.phi_rad) {
    const float phi = (std::sin(found.phi) - of.sin_phi[0]) / of.sin_phi[1];
    found.terms.insert(found.terms.end(), {phi, phi * phi, phi * e, phi * a});
  }
  for (std::size_t kind = 1; kind < model.particles.size(); ++kind) {
    const float is = model.particles[kind] == labels.pdg;
    found.terms.insert(found.terms.end(), {is, is * e, is * a, is * (e * e), is * (e * a), is * (a * a)});
  }
  found.inputs = {found.terms[1], found.terms[2], found.terms[4], found.terms[5]};
  found.inputs.insert(found.inputs.end(), found.terms.begin() + kMeanTerms, found.terms.end());
  found.slope_y = mesh.unit / std::tan(found.theta);
  found.slope_x = 0;
  if (model.phi_rad) {
    found.slope_y = mesh.unit / (std::tan(found.theta) * std::cos(found.phi));
    found.slope_x = mesh.unit * std::tan(found.phi);
  }
  return found;
}

}  // namespace calopipe
