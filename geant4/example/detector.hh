// The two calorimeters of the samples: 25 layers of 51 x 51 cells, and a cylinder of 45 layers of rings.
#pragma once

#include <G4VUserDetectorConstruction.hh>
#include <array>
#include <memory>
#include <string>

#include "calopipe/fast_simulation.hh"

class G4LogicalVolume;

// The numbers of a calorimeter's cells along x and y, or in angle and radius, and of its layers.
struct Shape {
  std::array<int, 3> cells;
  std::size_t size() const { return static_cast<std::size_t>(cells[0]) * cells[1] * cells[2]; }
};

class Detector : public G4VUserDetectorConstruction {
 public:
  // `cells` is the number along each side of the face. The cylinder has rings, and ignores it.
  Detector(bool cylinder, int cells);
  G4VPhysicalVolume* Construct() override;
  void ConstructSDandField() override;

  bool cylinder() const { return cylinder_; }
  Shape shape() const;
  double depth() const;  // of the calorimeter, whose middle is the origin

 private:
  G4LogicalVolume* layer_of_cells() const;
  G4LogicalVolume* layer_of_rings() const;

  const bool cylinder_;
  const int cells_;
  calopipe::FastSimulationControl control_;
};
