#include "control.hh"

#include <G4ParticleTable.hh>
#include <G4RunManager.hh>
#include <G4StateManager.hh>
#include <G4SystemOfUnits.hh>
#include <G4Threading.hh>
#include <G4UIcmdWithABool.hh>
#include <G4UIcmdWithADouble.hh>
#include <G4UIcmdWithADoubleAndUnit.hh>
#include <G4UIcmdWithAString.hh>
#include <G4UIcmdWithAnInteger.hh>
#include <G4UIdirectory.hh>
#include <G4UnitsTable.hh>
#include <G4ios.hh>
#include <algorithm>
#include <exception>
#include <sstream>

#include "aim.hh"

namespace calopipe {
namespace {

constexpr double degrees_per_rad = 57.29577951308232;

std::string name_of(int pdg) {
  const G4ParticleDefinition* particle = G4ParticleTable::GetParticleTable()->FindParticle(pdg);
  return particle != nullptr ? std::string(particle->GetParticleName()) : std::to_string(pdg);
}

void fail(G4UIcommand* command, const std::string& why) {
  G4ExceptionDescription line;
  line << why;
  command->CommandFailed(line);
}

}  // namespace

FastSimulationControl::FastSimulationControl() : state_(std::make_unique<State>()) {}
FastSimulationControl::~FastSimulationControl() = default;

FastSimulationControl::State::State() : directory_(std::make_unique<G4UIdirectory>("/calopipe/", false)) {
  directory_->SetGuidance("Showers of a trained model in place of Geant4's.");
  const auto add = [this](auto made, const char* parameter, const char* guidance) {
    made->SetGuidance(guidance);
    made->SetParameterName(parameter, false);
    made->AvailableForStates(G4State_PreInit, G4State_Idle);
    made->SetToBeBroadcasted(false);  // the threads share what they set
    commands_.push_back(std::move(made));
    return commands_.back().get();
  };
  model_command_ = add(std::make_unique<G4UIcmdWithAString>("/calopipe/model", this), "file",
                       "The model: a file of `python -m training export --output FILE.safetensors`.");
  particles_command_ =
      add(std::make_unique<G4UIcmdWithAString>("/calopipe/particles", this), "names",
          "The particles that the model is for, where its training did not record them: e-, or e- e+.");
  auto minimum = std::make_unique<G4UIcmdWithADoubleAndUnit>("/calopipe/minimumEnergy", this);
  minimum->SetUnitCategory("Energy");
  minimum_command_ =
      add(std::move(minimum), "energy", "Particles of less kinetic energy are left to Geant4, valid or not.");
  auto fraction = std::make_unique<G4UIcmdWithADouble>("/calopipe/samplingFraction", this);
  fraction_command_ = add(std::move(fraction), "fraction",
                          "What the deposits of the training were divided by: sensitive detectors get this share.");
  active_command_ = add(std::make_unique<G4UIcmdWithABool>("/calopipe/active", this), "active",
                        "false leaves all particles to Geant4.");
  auto verbose = std::make_unique<G4UIcmdWithAnInteger>("/calopipe/verbose", this);
  verbose->SetRange("level >= 0");
  verbose_command_ = add(std::move(verbose), "level",
                         "0: nothing; 1: the model, and a line at the end of each run; 2: each shower too.");
}

FastSimulationControl::State::~State() = default;

void FastSimulationControl::State::SetNewValue(G4UIcommand* command, G4String value) {
  if (command == model_command_) {
    load(value, command);
  } else if (command == particles_command_) {
    set_particles(value, command);
  } else if (command == minimum_command_) {
    minimum_energy_ = G4UIcommand::ConvertToDimensionedDouble(value);
  } else if (command == fraction_command_) {
    const double fraction = G4UIcommand::ConvertToDouble(value);
    if (!(fraction > 0 && fraction <= 1))
      return fail(command, "a sampling fraction is above 0 and at most 1, not " + value);
    sampling_fraction_ = fraction;
  } else if (command == active_command_) {
    active_ = G4UIcommand::ConvertToBool(value);
  } else {
    verbose_ = G4UIcommand::ConvertToInt(value);
  }
}

G4String FastSimulationControl::State::GetCurrentValue(G4UIcommand* command) {
  if (command == model_command_) return file_;
  if (command == particles_command_) {
    std::string names;
    for (const int pdg : particles_) names += (names.empty() ? "" : " ") + name_of(pdg);
    return names;
  }
  if (command == minimum_command_) return G4UIcommand::ConvertToString(minimum_energy_ / GeV) + " GeV";
  if (command == fraction_command_) return G4UIcommand::ConvertToString(sampling_fraction_);
  if (command == active_command_) return G4UIcommand::ConvertToString(active_);
  return G4UIcommand::ConvertToString(verbose_);
}

void FastSimulationControl::State::load(const std::string& file, G4UIcommand* command) {
  model_.reset();
  aim_mm_.reset();
  particles_.clear();
  file_ = file;
  fault_.clear();
  try {
    model_ = Model::load(file);
  } catch (const std::exception& fault) {
    fault_ = fault.what();
    if (fault_.find(file) == std::string::npos) fault_ = file + ": " + fault_;
    return fail(command, fault_);
  }
  particles_.insert(model_->particles().begin(), model_->particles().end());
  if (verbose_ == 0) return;
  const auto range = [](const char* name, Range of, double unit, const char* units) {
    std::ostringstream text;
    text << ", " << name << ' ' << of.low * unit;
    if (of.high != of.low) text << " to " << of.high * unit;
    text << ' ' << units;
    return text.str();
  };
  G4cout << "calopipe: " << file << ": " << model_->layers().size() << " layers"
         << (model_->in_rings() ? " of rings" : "") << range("energy", model_->energy_gev(), 1, "GeV")
         << range("theta", model_->theta_rad(), degrees_per_rad, "degrees");
  if (model_->phi_rad()) G4cout << range("phi", *model_->phi_rad(), degrees_per_rad, "degrees");
  for (const int pdg : particles_) G4cout << ", " << name_of(pdg);
  if (particles_.empty()) G4cout << ", particles not recorded: say which by /calopipe/particles";
  G4cout << G4endl;
}

void FastSimulationControl::State::set_particles(const std::string& names, G4UIcommand* command) {
  if (!model_) return fail(command, "/calopipe/particles comes after /calopipe/model");
  std::set<int> found;
  std::istringstream words(names);
  for (std::string name; words >> name;) {
    const G4ParticleDefinition* particle = G4ParticleTable::GetParticleTable()->FindParticle(name);
    if (particle == nullptr) return fail(command, "Geant4 knows no particle " + name + "; the physics comes first");
    found.insert(particle->GetPDGEncoding());
  }
  const auto& known = model_->particles();
  for (const int pdg : found) {
    if (!known.empty() && std::find(known.begin(), known.end(), pdg) == known.end()) {
      return fail(command, file_ + " was not trained with " + name_of(pdg));
    }
  }
  particles_ = found;
}

Counts* FastSimulationControl::State::new_counts() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return &counts_.emplace_back();
}

double FastSimulationControl::State::aim_mm(const std::vector<double>& depth_mm) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!aim_mm_) {
    aim_mm_ = calopipe::aim_mm(model_, depth_mm);
    if (verbose_ > 0) {
      G4cout << "calopipe: the model's particles cross the middle of the window " << *aim_mm_ << " mm behind the front"
             << G4endl;
    }
  }
  return *aim_mm_;
}

G4bool FastSimulationControl::State::Notify(G4ApplicationState requested) {
  const G4ApplicationState now = G4StateManager::GetStateManager()->GetCurrentState();
  if (now == G4State_Idle && requested == G4State_GeomClosed) begin_run();
  if (now == G4State_GeomClosed && requested == G4State_Idle) end_run();
  return true;
}

void FastSimulationControl::State::begin_run() {
  for (Counts& counts : counts_) counts = Counts();
  if (G4RunManager::GetRunManager()->GetNumberOfEventsToBeProcessed() == 0)
    return;  // Geant4 runs so to initialise its threads
  const char* place = "calopipe::FastSimulation";
  if (active_ && !fault_.empty()) G4Exception(place, "calopipe001", FatalErrorInArgument, fault_.c_str());
  if (model() && particles_.empty()) {
    G4Exception(place, "calopipe002", FatalErrorInArgument,
                (file_ + " does not say of which particles it is: give /calopipe/particles").c_str());
  }
}

void FastSimulationControl::State::end_run() const {
  if (verbose_ == 0) return;
  Counts sum;
  for (const Counts& counts : counts_) {
    sum.showers += counts.showers;
    sum.energy += counts.energy;
    sum.deposited += counts.deposited;
    sum.lost += counts.lost;
    sum.seconds += counts.seconds;
    for (std::size_t reason = 0; reason < sum.left.size(); ++reason) sum.left[reason] += counts.left[reason];
  }
  static constexpr const char* reasons[] = {"of other kinds",
                                            "below the minimum energy",
                                            "of energies outside the model's range",
                                            "not through the front",
                                            "of angles outside the model's range",
                                            "too near to an edge"};
  std::ostringstream line;
  long left = 0;
  for (std::size_t reason = 0; reason < sum.left.size(); ++reason) {
    if (sum.left[reason] == 0) continue;
    line << (left == 0 ? ": " : ", ") << sum.left[reason] << ' ' << reasons[reason];
    left += sum.left[reason];
  }
  if (sum.showers + left == 0) return;
  G4cout << "calopipe: " << sum.showers << " showers of " << G4BestUnit(sum.energy, "Energy") << "; " << left
         << " particles left to Geant4" << line.str();
  if (sum.showers > 0) {
    G4cout << "; " << 1e3 * sum.seconds / static_cast<double>(sum.showers) << " ms of a core a shower; "
           << 100 * sum.lost / (sum.deposited + sum.lost) << " % of the deposits outside sensitive detectors";
  }
  G4cout << G4endl;
}

}  // namespace calopipe
