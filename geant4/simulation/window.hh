// A model's window of cells in the region's root volume.
#pragma once

#include <G4AffineTransform.hh>
#include <G4ThreeVector.hh>
#include <G4Transform3D.hh>
#include <G4VSolid.hh>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "calopipe/showers.hh"

class G4LogicalVolume;

namespace calopipe {

// The window may stand wherever the pattern of cells repeats: whole periods from the middle of the front face. A window
// of rings may stand anywhere. Lengths are in Geant4's unit, mm. Places are in the frame of the front, which does not
// move with the window.
class Window {
 public:
  // A window in `volume`; `to_global` takes the volume's frame to the global frame. G4Exception ends the program if a
  // layer of the model has no sensitive detector on the window's axis.
  Window(std::shared_ptr<const Model> model, const G4LogicalVolume& volume, const G4AffineTransform& to_global,
         const std::optional<G4Transform3D>& front);

  G4ThreeVector place(const G4ThreeVector& point) const { return from_volume_ * HepGeom::Point3D<double>(point); }
  G4ThreeVector direction(const G4ThreeVector& vector) const {
    return from_volume_ * HepGeom::Vector3D<double>(vector);
  }
  double depth() const { return depth_; }
  // The depth, from the front, of the middle of each layer's sensitive material on the window's axis.
  const std::vector<double>& sensitive_depths() const { return sensitive_; }
  // An angle that moves the end of a shower by a tenth of a cell.
  double tolerance_rad() const;

  // Where the window has to stand so that its middle cell holds `point`.
  std::array<double, 2> stand(const G4ThreeVector& point) const;
  // Whether the straight line through `point` along `direction` keeps two cells away from the volume's sides.
  bool holds(const G4ThreeVector& point, const G4ThreeVector& direction) const;
  // The middle of a deposit's cell, in the frame of the volume. In a layer of one angle: a random angle on the ring.
  G4ThreeVector cell(const Deposit& deposit, const std::array<double, 2>& stand) const;

 private:
  double sensitive_depth(std::size_t layer, double front, const G4AffineTransform& to_global) const;

  std::shared_ptr<const Model> model_;
  const G4VSolid* solid_;
  G4Transform3D to_volume_, from_volume_;
  std::array<double, 2> cell_{}, period_{};
  double depth_ = 0;
  std::vector<double> sensitive_;
};

}  // namespace calopipe
