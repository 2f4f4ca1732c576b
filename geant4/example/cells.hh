// The sensitive detector, which sums the energy of each cell in an event.
#pragma once

#include <G4ThreeVector.hh>
#include <G4VSensitiveDetector.hh>
#include <array>
#include <vector>

#include "detector.hh"

class Cells : public G4VSensitiveDetector {
 public:
  // The three indices of a cell are copy numbers of volumes. `levels` says how far above the cell, in the tree of
  // volumes, these volumes are.
  Cells(const Shape& shape, const std::array<int, 3>& levels);
  void Initialize(G4HCofThisEvent*) override;
  G4bool ProcessHits(G4Step* step, G4TouchableHistory*) override;

  // Energies in Geant4's unit; the index is (first * second cells + second) * layers + layer.
  const std::vector<double>& energy() const { return energy_; }
  // Energy-weighted means of the event: of the global position, and of the time.
  G4ThreeVector middle() const { return total_ > 0 ? place_ / total_ : place_; }
  double time() const { return total_ > 0 ? time_ / total_ : time_; }

 private:
  const Shape shape_;
  const std::array<int, 3> levels_;
  std::vector<double> energy_;
  double total_ = 0, time_ = 0;
  G4ThreeVector place_;
};
