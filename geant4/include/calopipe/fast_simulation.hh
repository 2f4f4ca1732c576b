// Showers of a calopipe model in Geant4's event loop, as a fast simulation model of a region.
//
//     // in the constructor of your G4VUserDetectorConstruction, on the master thread: makes the commands /calopipe/
//     control_ = std::make_unique<calopipe::FastSimulationControl>();
//     // in its ConstructSDandField, on every thread
//     new calopipe::FastSimulation("calopipe", region, *control_);
//
// The physics list also needs G4FastSimulationPhysics, activated for the particles of the model. docs/geant4.md says
// more.
#pragma once

#include <G4FastHit.hh>
#include <G4Region.hh>
#include <G4Transform3D.hh>
#include <G4VFastSimulationModel.hh>
#include <memory>
#include <optional>

namespace calopipe {

// What the fast simulation models of all threads share: the weights, the settings, the counts of a run, and the
// commands /calopipe/. Make one control on the master thread, before the macro is read. It must outlive all runs.
class FastSimulationControl {
 public:
  FastSimulationControl();
  ~FastSimulationControl();
  FastSimulationControl(const FastSimulationControl&) = delete;
  FastSimulationControl& operator=(const FastSimulationControl&) = delete;

  class State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// The hit that a G4VFastSimSensitiveDetector gets. Its position is in the envelope's frame. Unlike G4FastHit, it has
// the global time: `dynamic_cast<const calopipe::TimedHit*>(hit)->time()`.
class TimedHit : public G4FastHit {
 public:
  using G4FastHit::G4FastHit;
  void set_time(G4double time) { time_ = time; }
  G4double time() const { return time_; }

 private:
  G4double time_ = 0;
};

// Replaces a particle by a shower of the model, if the particle enters the region through its front and the model is
// valid for it. Other particles are left to Geant4, and counted by reason. Make one object on each thread.
//
// `front` takes the model's frame to the frame of the region's root volume. The model's frame has its origin in the
// middle of the front face, x and y along the cells, and z into the depth. Without `front`, the front is the face of
// least z of the volume's bounding box. A sensitive detector is a G4VSensitiveDetector, which may also be a
// G4VFastSimSensitiveDetector.
class FastSimulation : public G4VFastSimulationModel {
 public:
  FastSimulation(const G4String& name, G4Region* region, FastSimulationControl& control,
                 const std::optional<G4Transform3D>& front = std::nullopt);
  ~FastSimulation() override;

  G4bool IsApplicable(const G4ParticleDefinition&) override { return true; }  // ModelTrigger counts other kinds
  G4bool ModelTrigger(const G4FastTrack& track) override;
  void DoIt(const G4FastTrack& track, G4FastStep& step) override;

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace calopipe
