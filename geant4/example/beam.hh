// One particle an event.
#pragma once

#include <G4ParticleGun.hh>
#include <G4UImessenger.hh>
#include <G4VUserPrimaryGeneratorAction.hh>
#include <memory>
#include <string>
#include <utility>
#include <vector>

class G4UIcommand;
class G4UIdirectory;

// What the threads' beams share, and the commands of /beam/.
class BeamSettings : public G4UImessenger {
 public:
  BeamSettings(bool cylinder, double depth);
  ~BeamSettings() override;
  void SetNewValue(G4UIcommand* command, G4String value) override;

  bool cylinder;
  double depth;                                 // of the calorimeter
  std::pair<double, double> energy, theta;      // ranges, drawn from evenly; in the cylinder evenly in log E
  std::vector<std::pair<double, double>> like;  // energy and theta by event, in place of drawn values
  bool gun = false;                             // whether the commands /gun/ decide

 private:
  std::unique_ptr<G4UIdirectory> directory_;
  std::vector<std::unique_ptr<G4UIcommand>> commands_;
};

// Makes the particle of each event. In the sample's calorimeter, the particle crosses the middle cell at the depth of
// nine layers, at a place that is drawn evenly. In the cylinder it moves along the axis.
class Beam : public G4VUserPrimaryGeneratorAction {
 public:
  explicit Beam(const BeamSettings& settings);
  void GeneratePrimaries(G4Event* event) override;

 private:
  const BeamSettings& settings_;
  G4ParticleGun gun_;
};
