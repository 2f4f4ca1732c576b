#include "beam.hh"

#include <G4Electron.hh>
#include <G4Event.hh>
#include <G4SystemOfUnits.hh>
#include <G4UIcommand.hh>
#include <G4UIdirectory.hh>
#include <G4UIparameter.hh>
#include <Randomize.hh>
#include <cmath>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include "showers_file.hh"

namespace {

constexpr double cell = 5.1 * mm, aimed = 36 * mm, before = 1 * mm;

std::pair<double, double> range_of(const std::string& text) {
  std::istringstream words(text);
  double low = 0, high = 0;
  std::string unit;
  words >> low >> high >> unit;
  return {low * G4UIcommand::ValueOf(unit.c_str()), high * G4UIcommand::ValueOf(unit.c_str())};
}

}  // namespace

BeamSettings::BeamSettings(bool with_cylinder, double of_depth)
    : cylinder(with_cylinder),
      depth(of_depth),
      energy(cylinder ? std::pair(1 * GeV, 100 * GeV) : std::pair(100 * GeV, 200 * GeV)),
      theta(cylinder ? std::pair(90 * deg, 90 * deg) : std::pair(60 * deg, 120 * deg)),
      directory_(std::make_unique<G4UIdirectory>("/beam/", false)) {
  directory_->SetGuidance("The particle of each event.");
  const auto add = [this](const char* path, const char* guidance, const char* names, const char* types) {
    auto made = std::make_unique<G4UIcommand>(path, this, false);
    made->SetGuidance(guidance);
    std::istringstream words(names);
    std::string name;
    for (const char* type = types; words >> name; ++type) {
      made->SetParameter(new G4UIparameter(name.c_str(), *type, false));
    }
    commands_.push_back(std::move(made));
  };
  add("/beam/energy", "Least and greatest energy: 100 200 GeV.", "low high unit", "dds");
  add("/beam/theta", "Least and greatest angle, 90 deg being perpendicular: 60 120 deg.", "low high unit", "dds");
  add("/beam/like", "Energy and angle of each event are those of a file of showers, in its order.", "file", "s");
  add("/beam/gun", "Whether the particle is that of the commands /gun/.", "on", "b");
}

BeamSettings::~BeamSettings() = default;

void BeamSettings::SetNewValue(G4UIcommand* command, G4String value) {
  const G4String name = command->GetCommandName();
  if (name == "energy") {
    energy = range_of(value);
  } else if (name == "theta") {
    theta = range_of(value);
  } else if (name == "gun") {
    gun = G4UIcommand::ConvertToBool(value);
  } else {
    try {
      like = labels_of(value);
    } catch (const std::runtime_error& fault) {
      G4ExceptionDescription line;
      line << fault.what();
      command->CommandFailed(line);
    }
  }
}

Beam::Beam(const BeamSettings& settings) : settings_(settings), gun_(G4Electron::Definition()) {}

void Beam::GeneratePrimaries(G4Event* event) {
  if (settings_.gun) return gun_.GeneratePrimaryVertex(event);
  const auto uniform = [](double low, double high) { return low + (high - low) * G4UniformRand(); };
  double energy = 0, theta = 0;
  if (!settings_.like.empty()) {
    std::tie(energy, theta) = settings_.like[static_cast<std::size_t>(event->GetEventID()) % settings_.like.size()];
  } else {
    const auto [low, high] = settings_.energy;
    energy = settings_.cylinder ? std::exp(uniform(std::log(low), std::log(high))) : uniform(low, high);
    theta = uniform(settings_.theta.first, settings_.theta.second);
  }
  const G4ThreeVector direction(0, std::cos(theta), std::sin(theta));
  G4ThreeVector at(.01 * mm, .007 * mm, aimed - settings_.depth / 2);
  if (!settings_.cylinder) at = {uniform(-cell / 2, cell / 2), uniform(-cell / 2, cell / 2), at.z()};
  gun_.SetParticleEnergy(energy);
  gun_.SetParticleMomentumDirection(direction);
  gun_.SetParticlePosition(at - direction * ((aimed + before) / direction.z()));
  gun_.GeneratePrimaryVertex(event);
}
