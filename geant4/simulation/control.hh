// What the threads share: the model, the settings, and the counts of a run.
#pragma once

#include <G4UImessenger.hh>
#include <G4VStateDependent.hh>
#include <array>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "calopipe/fast_simulation.hh"
#include "calopipe/showers.hh"

class G4UIcommand;
class G4UIdirectory;

namespace calopipe {

// Why a particle that enters the region is left to Geant4.
enum class Reason { kind, threshold, energy, side, angle, edge, count };

// The counts of one thread in one run. Energies are in Geant4's units.
struct Counts {
  long showers = 0;
  double energy = 0;     // of the particles that became showers
  double deposited = 0;  // by showers, in sensitive detectors
  double lost = 0;       // by showers, where there is no sensitive detector
  double seconds = 0;    // of processor time
  std::array<long, static_cast<std::size_t>(Reason::count)> left{};
};

class FastSimulationControl::State : public G4UImessenger, public G4VStateDependent {
 public:
  State();
  ~State() override;

  void SetNewValue(G4UIcommand* command, G4String value) override;
  G4String GetCurrentValue(G4UIcommand* command) override;
  G4bool Notify(G4ApplicationState requested) override;

  // Null: all particles are left to Geant4. The model changes only between runs.
  const std::shared_ptr<const Model>& model() const { return active_ ? model_ : none_; }
  bool simulates(int pdg) const { return particles_.count(pdg) > 0; }
  double minimum_energy() const { return minimum_energy_; }
  double sampling_fraction() const { return sampling_fraction_; }
  int verbose() const { return verbose_; }

  Counts* new_counts();  // for one thread
  // The depth in mm at which the particles of the training crossed the window's middle, see aim.hh. It is computed once
  // for a model, from the `depth_mm` of its layers.
  double aim_mm(const std::vector<double>& depth_mm);

 private:
  void load(const std::string& file, G4UIcommand* command);
  void set_particles(const std::string& names, G4UIcommand* command);
  void begin_run();
  void end_run() const;

  std::unique_ptr<G4UIdirectory> directory_;
  std::vector<std::unique_ptr<G4UIcommand>> commands_;
  G4UIcommand *model_command_, *particles_command_, *minimum_command_, *fraction_command_, *active_command_,
      *verbose_command_;

  const std::shared_ptr<const Model> none_;
  std::shared_ptr<const Model> model_;
  std::string file_, fault_;
  std::set<int> particles_;
  double minimum_energy_ = 0, sampling_fraction_ = 1;
  bool active_ = true;
  int verbose_ = 1;

  std::mutex mutex_;
  std::list<Counts> counts_;
  std::optional<double> aim_mm_;
};

}  // namespace calopipe
