// Runs a macro: electrons in the calorimeter of one of the samples, by Geant4 or by a model of calopipe.
#include <G4Event.hh>
#include <G4EventManager.hh>
#include <G4FastSimulationPhysics.hh>
#include <G4PhysListFactory.hh>
#include <G4PrimaryParticle.hh>
#include <G4PrimaryVertex.hh>
#include <G4Run.hh>
#include <G4RunManagerFactory.hh>
#include <G4SDManager.hh>
#include <G4SystemOfUnits.hh>
#include <G4UImanager.hh>
#include <G4UserEventAction.hh>
#include <G4UserRunAction.hh>
#include <G4VModularPhysicsList.hh>
#include <G4VUserActionInitialization.hh>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "beam.hh"
#include "cells.hh"
#include "detector.hh"
#include "physics.hh"
#include "showers_file.hh"

namespace {

const char* const usage =
    "usage: calopipe-example MACRO [--output FILE.h5] [--cylinder] [--cells 51] [--threads N] [--physics NAME]\n"
    "  MACRO      full.mac or fast.mac\n"
    "  --output   the showers, as HDF5 that `python -m validation` reads\n"
    "  --cylinder the cylinder of rings in place of the cells\n"
    "  --cells    along each side of the face\n"
    "  --threads  of Geant4; one without this option\n"
    "  --physics  a physics list of Geant4, as FTFP_BERT; without it electromagnetic models that need no data files\n";

struct Options {
  std::string macro, output, physics;
  bool cylinder = false;
  int cells = 51, threads = 0;
};

int count_of(const std::string& name, const std::string& text) {
  char* end = nullptr;
  const long found = std::strtol(text.c_str(), &end, 10);
  if (*end != '\0' || found < 1 || found > 10000)
    throw std::invalid_argument(name + " " + text + ": give a whole number");
  return static_cast<int>(found);
}

Options options_of(int count, char** words) {
  Options options;
  for (int number = 1; number < count; ++number) {
    const std::string word = words[number];
    const auto value = [&]() -> std::string {
      if (++number == count) throw std::invalid_argument(word + " needs a value");
      return words[number];
    };
    if (word == "--cylinder") {
      options.cylinder = true;
    } else if (word == "--output") {
      options.output = value();
    } else if (word == "--physics") {
      options.physics = value();
    } else if (word == "--cells") {
      options.cells = count_of(word, value());
    } else if (word == "--threads") {
      options.threads = count_of(word, value());
    } else if (word[0] != '-' && options.macro.empty()) {
      options.macro = word;
    } else {
      throw std::invalid_argument(word + " is no option");
    }
  }
  if (options.macro.empty()) throw std::invalid_argument("a macro is missing");
  return options;
}

// What the threads share.
struct Shared {
  const Detector& detector;
  const BeamSettings& beam;
  std::unique_ptr<ShowersFile> file;
  std::mutex mutex;
};

class Events : public G4UserEventAction {
 public:
  explicit Events(Shared& shared) : shared_(shared) {}

  void EndOfEventAction(const G4Event* event) override {
    if (!shared_.file) return;
    const auto* cells = static_cast<const Cells*>(G4SDManager::GetSDMpointer()->FindSensitiveDetector("cells"));
    const G4PrimaryParticle& particle = *event->GetPrimaryVertex()->GetPrimary();
    Shower shower;
    shower.energy_gev = particle.GetKineticEnergy() / GeV;
    shower.theta = std::acos(particle.GetMomentumDirection().y());
    shower.time_ns = cells->time() / ns;
    const G4ThreeVector middle = cells->middle() / mm;
    shower.middle_mm = {middle.x(), middle.y(), middle.z()};
    for (const double energy : cells->energy()) shower.cells.push_back(static_cast<float>(energy / MeV));
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    shared_.file->add(event->GetEventID(), std::move(shower));
  }

 private:
  Shared& shared_;
};

// The action of the master thread, or of the only thread.
class Runs : public G4UserRunAction {
 public:
  explicit Runs(Shared& shared) : shared_(shared) {}
  void BeginOfRunAction(const G4Run*) override { start_ = std::clock(); }
  void EndOfRunAction(const G4Run* run) override {
    const double seconds = static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC;
    const int events = run->GetNumberOfEvent();
    if (shared_.file) shared_.file->end_run();
    if (events > 0) {
      G4cout << events << " events, " << seconds << " s of processors, " << 1e3 * seconds / events << " ms each"
             << G4endl;
    }
  }

 private:
  Shared& shared_;
  std::clock_t start_ = 0;
};

class Actions : public G4VUserActionInitialization {
 public:
  explicit Actions(Shared& shared) : shared_(shared) {}
  void BuildForMaster() const override { SetUserAction(new Runs(shared_)); }
  void Build() const override {
    SetUserAction(new Beam(shared_.beam));
    SetUserAction(new Events(shared_));
    if (G4RunManager::GetRunManager()->GetRunManagerType() == G4RunManager::sequentialRM) BuildForMaster();
  }

 private:
  Shared& shared_;
};

G4VModularPhysicsList* physics_of(const std::string& name) {
  G4VModularPhysicsList* physics = nullptr;
  if (name.empty()) {
    physics = new G4VModularPhysicsList;
    physics->RegisterPhysics(new PhysicsWithoutData);
  } else {
    G4PhysListFactory lists;
    if (!lists.IsReferencePhysList(name)) throw std::invalid_argument("--physics " + name + " is no list of Geant4");
    physics = lists.GetReferencePhysList(name);
  }
  auto* fast = new G4FastSimulationPhysics;
  for (const char* particle : {"e-", "e+", "gamma"}) fast->ActivateFastSimulation(particle);
  physics->RegisterPhysics(fast);
  return physics;
}

int run(const Options& options) {
  auto* detector = new Detector(options.cylinder, options.cells);
  BeamSettings beam(options.cylinder, detector->depth());
  Shared shared{*detector, beam, nullptr, {}};
  if (!options.output.empty()) {
    shared.file = std::make_unique<ShowersFile>(options.output, detector->shape(), options.cylinder);
  }
  const auto type = options.threads > 0 ? G4RunManagerType::MTOnly : G4RunManagerType::SerialOnly;
  const std::unique_ptr<G4RunManager> manager(G4RunManagerFactory::CreateRunManager(type));
  if (options.threads > 0) manager->SetNumberOfThreads(options.threads);
  manager->SetUserInitialization(detector);
  manager->SetUserInitialization(physics_of(options.physics));
  manager->SetUserInitialization(new Actions(shared));
  const int failed = G4UImanager::GetUIpointer()->ApplyCommand("/control/execute " + options.macro);
  if (failed != 0) {
    std::cerr << "calopipe-example: " << options.macro << " ended early\n";
    return 1;
  }
  if (shared.file) shared.file->close();
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(options_of(count, words));
  } catch (const std::invalid_argument& fault) {
    std::cerr << "calopipe-example: " << fault.what() << "\n" << usage;
    return 2;
  } catch (const std::runtime_error& fault) {
    std::cerr << "calopipe-example: " << fault.what() << "\n";
    return 2;
  }
}
