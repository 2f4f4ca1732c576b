// Showers of a calopipe model in Geant4's event loop, as a fast simulation model of a region.
//
//     // in the constructor of the user's G4VUserDetectorConstruction, on the master thread: the commands /calopipe/
//     control_ = std::make_unique<calopipe::FastSimulationControl>();
//     // in its ConstructSDandField, on every thread
//     new calopipe::FastSimulation("calopipe", region, *control_);
//
// and G4FastSimulationPhysics, activated for the particles of the model, among the physics. docs/geant4.md has the
// rest.
#pragma once

#include <G4FastHit.hh>
#include <G4Region.hh>
#include <G4Transform3D.hh>
#include <G4VFastSimulationModel.hh>
#include <memory>
#include <optional>

namespace calopipe {

// What the fast simulation models of all threads share: the weights, the settings, the counts of a run, and the
// commands of /calopipe/. One is made on the master thread, before the macro is read. It must live as long as the runs.
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

// A hit as a G4VFastSimSensitiveDetector gets it: position in the envelope's frame, and the global time, which
// G4FastHit lacks (`dynamic_cast<const calopipe::TimedHit*>(hit)`).
class TimedHit : public G4FastHit {
 public:
  using G4FastHit::G4FastHit;
  void set_time(G4double time) { time_ = time; }
  G4double time() const { return time_; }

 private:
  G4double time_ = 0;
};

// Replaces a particle that enters the region through its front by a shower of the model, if the model is valid for it.
// Any other is left to Geant4, and counted by the reason. One of them is made on each thread.
//
// `front` takes the model's frame to the frame of the region's root volume: origin in the middle of the front face, x
// and y along the cells, z into the depth. Without it the front is the face of least z of the volume's bounding box.
// A sensitive detector may be a plain G4VSensitiveDetector, or a G4VFastSimSensitiveDetector too.
class FastSimulation : public G4VFastSimulationModel {
 public:
  FastSimulation(const G4String& name, G4Region* region, FastSimulationControl& control,
                 const std::optional<G4Transform3D>& front = std::nullopt);
  ~FastSimulation() override;

  G4bool IsApplicable(const G4ParticleDefinition&) override { return true; }  // ModelTrigger counts the others
  G4bool ModelTrigger(const G4FastTrack& track) override;
  void DoIt(const G4FastTrack& track, G4FastStep& step) override;

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace calopipe
