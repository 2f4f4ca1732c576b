#include "calopipe/fast_simulation.hh"

#include <G4FastStep.hh>
#include <G4FastTrack.hh>
#include <G4LogicalVolume.hh>
#include <G4PhysicalConstants.hh>
#include <G4SystemOfUnits.hh>
#include <G4VSolid.hh>
#include <G4ios.hh>
#include <Randomize.hh>
#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <vector>

#include "calopipe/showers.hh"
#include "control.hh"
#include "hit_maker.hh"
#include "window.hh"

namespace calopipe {
namespace {

constexpr double on_the_front = 1e-6 * mm;
constexpr float below_one = 0x1.fffffep-1F;  // float32 may round a double below 1 to 1

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// `value` moved into the range; nothing if `value` lies outside by more than `tolerance`.
std::optional<double> within(const Range& range, double value, double tolerance) {
  if (value < range.low - tolerance || value > range.high + tolerance) return std::nullopt;
  return std::clamp(value, range.low, range.high);
}

}  // namespace

// The part of the simulation that each thread has for itself.
class FastSimulation::Thread {
 public:
  Thread(FastSimulationControl::State& control, const std::optional<G4Transform3D>& front)
      : control_(control), counts_(*control.new_counts()), front_(front) {}

  bool trigger(const G4FastTrack& track);
  void shower(const G4FastTrack& track);

 private:
  bool leave(Reason reason) {
    ++counts_.left[static_cast<std::size_t>(reason)];
    return false;
  }
  void follow();  // takes the model of the control
  const Window& window_of(const G4FastTrack& track);

  FastSimulationControl::State& control_;
  Counts& counts_;
  const std::optional<G4Transform3D> front_;
  std::shared_ptr<const Model> model_;
  std::optional<Sampler> sampler_;
  std::map<const G4LogicalVolume*, Window> windows_;
  HitMaker hit_maker_;
  std::vector<double> uniform_;
  std::vector<float> noise_;
  std::vector<Deposit> deposits_;

  // Of the particle that triggered last.
  const Window* window_ = nullptr;
  Labels labels_;
  std::array<double, 2> stand_{};
  G4ThreeVector place_, direction_;
};

FastSimulation::FastSimulation(const G4String& name, G4Region* region, FastSimulationControl& control,
                               const std::optional<G4Transform3D>& front)
    : G4VFastSimulationModel(name, region), thread_(std::make_unique<Thread>(control.state(), front)) {}

FastSimulation::~FastSimulation() = default;

G4bool FastSimulation::ModelTrigger(const G4FastTrack& track) { return thread_->trigger(track); }

void FastSimulation::DoIt(const G4FastTrack& track, G4FastStep& step) {
  step.KillPrimaryTrack();
  step.ProposePrimaryTrackPathLength(0);
  step.ProposeTotalEnergyDeposited(track.GetPrimaryTrack()->GetKineticEnergy());
  thread_->shower(track);
}

void FastSimulation::Thread::follow() {
  if (model_ == control_.model()) return;
  model_ = control_.model();
  sampler_.reset();
  windows_.clear();
  if (!model_) return;
  sampler_.emplace(model_);
  uniform_.resize(static_cast<std::size_t>(model_->noise_numbers()));
  noise_.resize(uniform_.size());
}

const Window& FastSimulation::Thread::window_of(const G4FastTrack& track) {
  const G4LogicalVolume* volume = track.GetEnvelopeLogicalVolume();
  auto found = windows_.find(volume);
  if (found == windows_.end()) {
    const Window made(model_, *volume, *track.GetInverseAffineTransformation(), front_);
    found = windows_.emplace(volume, made).first;
  }
  return found->second;
}

bool FastSimulation::Thread::trigger(const G4FastTrack& track) {
  follow();
  if (!model_) return false;
  const G4Track& particle = *track.GetPrimaryTrack();
  const bool begins = particle.GetCurrentStepNumber() == 1;
  if (!begins && particle.GetStep()->GetPreStepPoint()->GetStepStatus() != fGeomBoundary) return false;
  const G4ThreeVector& local = track.GetPrimaryTrackLocalPosition();
  const bool enters = track.GetEnvelopeSolid()->Inside(local) == kSurface;
  if (!enters && !(begins && particle.GetParentID() == 0)) return false;  // a particle of a Geant4 shower

  if (!control_.simulates(particle.GetDefinition()->GetPDGEncoding())) return leave(Reason::kind);
  const double energy = particle.GetKineticEnergy();
  if (energy < control_.minimum_energy()) return leave(Reason::threshold);
  const Range range = model_->energy_gev();
  if (energy < range.low * GeV || energy > range.high * GeV) return leave(Reason::energy);

  window_ = &window_of(track);
  place_ = window_->place(local);
  direction_ = window_->direction(track.GetPrimaryTrackLocalDirection());
  if (!enters || place_.z() > on_the_front || direction_.z() <= 0) return leave(Reason::side);

  const double tolerance = window_->tolerance_rad();
  const auto theta = within(model_->theta_rad(), std::acos(direction_.y()), tolerance);
  const auto phi =
      within(model_->phi_rad().value_or(Range{0, 0}), std::atan2(direction_.x(), direction_.z()), tolerance);
  if (!theta || !phi) return leave(Reason::angle);
  labels_ = {energy / GeV, *theta, *phi, particle.GetDefinition()->GetPDGEncoding()};
  if (!window_->holds(place_, direction_)) return leave(Reason::edge);

  const double aim = control_.aim_mm(window_->sensitive_depths());
  stand_ = window_->stand(place_ + direction_ * ((aim - place_.z()) / direction_.z()));
  return true;
}

void FastSimulation::Thread::shower(const G4FastTrack& track) {
  const double start = processor_seconds();
  G4Random::getTheEngine()->flatArray(static_cast<int>(uniform_.size()), uniform_.data());
  std::transform(uniform_.begin(), uniform_.end(), noise_.begin(),
                 [](double number) { return std::min(static_cast<float>(number), below_one); });
  sampler_->draw(labels_, noise_.data(), deposits_);

  const double speed = track.GetPrimaryTrack()->GetVelocity() * direction_.z();  // into the depth
  const double fraction = control_.sampling_fraction();
  double deposited = 0, lost = 0;
  hit_maker_.begin(track);
  for (const Deposit& deposit : deposits_) {
    const double energy = deposit.energy_gev * GeV * fraction;
    const double depth = window_->sensitive_depths()[static_cast<std::size_t>(deposit.layer)];
    const bool made = hit_maker_.make(window_->cell(deposit, stand_), energy, (depth - place_.z()) / speed);
    (made ? deposited : lost) += energy;
  }
  counts_.showers += 1;
  counts_.energy += labels_.energy_gev * GeV;
  counts_.deposited += deposited;
  counts_.lost += lost;
  counts_.seconds += processor_seconds() - start;
  if (control_.verbose() > 1) {
    G4cout << "calopipe: a shower of " << labels_.energy_gev << " GeV: " << deposits_.size() << " cells, "
           << deposited / MeV << " MeV in sensitive detectors, " << lost / MeV << " MeV outside" << G4endl;
  }
}

}  // namespace calopipe
