// Batches of showers for `python -m training generate --library`, which calls these functions by ctypes.
//
// calopipe_load and calopipe_draw return 0. If they fail, they write why to `error`, which has `room` bytes, in one
// line, and return 1.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "calopipe/showers.hh"

namespace {

constexpr float kUnitGev = 0.02F;  // of the energies in cells

struct Loaded {
  std::shared_ptr<const calopipe::Model> model;
  std::size_t nx = 0, ny = 0, layers = 0;
};

template <typename Action>
int guarded(char* error, std::size_t room, Action action) {
  try {
    action();
    return 0;
  } catch (const std::exception& problem) {
    std::snprintf(error, room, "%s", problem.what());
    return 1;
  }
}

}  // namespace

extern "C" {

// Writes to `loaded` the model of an exported file, and to `shape` the numbers of its cells along x and y, and of its
// layers.
int calopipe_load(const char* file, void** loaded, std::int64_t* shape, char* error, std::size_t room) {
  return guarded(error, room, [&] {
    auto found = std::make_unique<Loaded>();
    found->model = calopipe::Model::load(file);
    found->layers = found->model->layers().size();
    for (const calopipe::Layer& layer : found->model->layers()) {
      found->nx = std::max(found->nx, static_cast<std::size_t>(layer.cells[0]));
      found->ny = std::max(found->ny, static_cast<std::size_t>(layer.cells[1]));
    }
    shape[0] = static_cast<std::int64_t>(found->nx);
    shape[1] = static_cast<std::int64_t>(found->ny);
    shape[2] = static_cast<std::int64_t>(found->layers);
    *loaded = found.release();
  });
}

void calopipe_free(void* loaded) { delete static_cast<Loaded*>(loaded); }

// Draws `showers` showers. `labels` (showers, 3) are energy in GeV, theta and phi in rad; `pdg` (showers) are PDG
// codes; `noise` (showers, numbers) are the uniform numbers that the showers are drawn from. `cells` (showers, x, y,
// layer) must be zeros, and get the energies in units of 0.02 GeV. Several threads may draw showers of one model.
int calopipe_draw(const void* loaded, std::size_t showers, const double* labels, const std::int32_t* pdg,
                  const float* noise, float* cells, char* error, std::size_t room) {
  return guarded(error, room, [&] {
    const Loaded& of = *static_cast<const Loaded*>(loaded);
    calopipe::Sampler sampler(of.model);
    std::vector<calopipe::Deposit> deposits;
    const auto numbers = static_cast<std::size_t>(of.model->noise_numbers());
    for (std::size_t k = 0; k < showers; ++k, labels += 3, noise += numbers, cells += of.nx * of.ny * of.layers) {
      sampler.draw({labels[0], labels[1], labels[2], pdg[k]}, noise, deposits);
      for (const calopipe::Deposit& each : deposits) {
        const auto row = static_cast<std::size_t>(each.x) * of.ny + static_cast<std::size_t>(each.y);
        cells[row * of.layers + static_cast<std::size_t>(each.layer)] = each.energy_gev / kUnitGev;
      }
    }
  });
}

}  // extern "C"
