#include "detector.hh"

#include <G4Box.hh>
#include <G4LogicalVolume.hh>
#include <G4NistManager.hh>
#include <G4PVPlacement.hh>
#include <G4PVReplica.hh>
#include <G4PhysicalConstants.hh>
#include <G4Region.hh>
#include <G4RegionStore.hh>
#include <G4SDManager.hh>
#include <G4SystemOfUnits.hh>
#include <G4Transform3D.hh>
#include <G4Tubs.hh>
#include <optional>

#include "cells.hh"

namespace {

// Layers of tungsten with silicon behind. The silicon is read out.
struct Plates {
  int layers;
  double tungsten, silicon;
  double pitch() const { return tungsten + silicon; }
};
constexpr Plates sample{25, 3.5 * mm, 0.5 * mm}, cylinder_of_rings{45, 1.4 * mm, 0.3 * mm};
constexpr double cell = 5.1 * mm;
constexpr int angles = 16, rings = 9;
constexpr double ring = 4.65 * mm, radius = 250 * mm;

G4Material* material(const char* name) { return G4NistManager::Instance()->FindOrBuildMaterial(name); }

// A layer of tungsten that holds a plate of silicon at its back.
G4LogicalVolume* layer_with(G4VSolid* whole, G4LogicalVolume* silicon, const Plates& plates) {
  auto* layer = new G4LogicalVolume(whole, material("G4_W"), "layer");
  new G4PVPlacement(nullptr, {0, 0, plates.tungsten / 2}, silicon, "silicon", layer, false, 0);
  return layer;
}

}  // namespace

Detector::Detector(bool cylinder, int cells) : cylinder_(cylinder), cells_(cells) {}

Shape Detector::shape() const {
  if (cylinder_) return {{angles, rings, cylinder_of_rings.layers}};
  return {{cells_, cells_, sample.layers}};
}

double Detector::depth() const {
  const Plates& plates = cylinder_ ? cylinder_of_rings : sample;
  return plates.layers * plates.pitch();
}

G4LogicalVolume* Detector::layer_of_cells() const {
  const double side = cells_ * cell, thick = sample.silicon;
  auto* silicon = material("G4_Si");
  auto* plate = new G4LogicalVolume(new G4Box("silicon", side / 2, side / 2, thick / 2), silicon, "silicon");
  auto* row = new G4LogicalVolume(new G4Box("row", cell / 2, side / 2, thick / 2), silicon, "row");
  auto* one = new G4LogicalVolume(new G4Box("cell", cell / 2, cell / 2, thick / 2), silicon, "cell");
  new G4PVReplica("row", row, plate, kXAxis, cells_, cell);
  new G4PVReplica("cell", one, row, kYAxis, cells_, cell);
  return layer_with(new G4Box("layer", side / 2, side / 2, sample.pitch() / 2), plate, sample);
}

G4LogicalVolume* Detector::layer_of_rings() const {
  const double thick = cylinder_of_rings.silicon, angle = twopi / angles, reach = rings * ring;
  auto* silicon = material("G4_Si");
  auto* plate = new G4LogicalVolume(new G4Tubs("silicon", 0, radius, thick / 2, 0, twopi), silicon, "silicon");
  auto* core = new G4LogicalVolume(new G4Tubs("core", 0, reach, thick / 2, 0, twopi), silicon, "core");
  auto* slice = new G4LogicalVolume(new G4Tubs("slice", 0, reach, thick / 2, 0, angle), silicon, "slice");
  auto* one = new G4LogicalVolume(new G4Tubs("cell", 0, ring, thick / 2, 0, angle), silicon, "cell");
  new G4PVPlacement(nullptr, {}, core, "core", plate, false, 0);
  new G4PVReplica("slice", slice, core, kPhi, angles, angle, 0);
  new G4PVReplica("cell", one, slice, kRho, rings, ring, 0);
  const Plates& plates = cylinder_of_rings;
  return layer_with(new G4Tubs("layer", 0, radius, plates.pitch() / 2, 0, twopi), plate, plates);
}

G4VPhysicalVolume* Detector::Construct() {
  const Plates& plates = cylinder_ ? cylinder_of_rings : sample;
  const double half = cylinder_ ? radius : cells_ * cell / 2;
  auto* vacuum = material("G4_Galactic");
  auto* world = new G4LogicalVolume(new G4Box("world", 3 * half, 3 * half, 2 * depth()), vacuum, "world");
  auto* placed = new G4PVPlacement(nullptr, {}, world, "world", nullptr, false, 0);
  G4VSolid* solid = new G4Box("calorimeter", half, half, depth() / 2);
  if (cylinder_) solid = new G4Tubs("calorimeter", 0, radius, depth() / 2, 0, twopi);
  auto* whole = new G4LogicalVolume(solid, vacuum, "calorimeter");
  new G4PVPlacement(nullptr, {}, whole, "calorimeter", world, false, 0);
  auto* layer = cylinder_ ? layer_of_rings() : layer_of_cells();
  for (int number = 0; number < plates.layers; ++number) {
    const double z = -depth() / 2 + (number + .5) * plates.pitch();
    new G4PVPlacement(nullptr, {0, 0, z}, layer, "layer", whole, false, number);
  }
  (new G4Region("calorimeter"))->AddRootLogicalVolume(whole);
  return placed;
}

void Detector::ConstructSDandField() {
  auto* cells = new Cells(shape(), cylinder_ ? std::array<int, 3>{1, 0, 4} : std::array<int, 3>{1, 0, 3});
  G4SDManager::GetSDMpointer()->AddNewDetector(cells);
  SetSensitiveDetector("cell", cells);
  auto* region = G4RegionStore::GetInstance()->GetRegion("calorimeter");
  std::optional<G4Transform3D> front;  // needed for rings: angles count from 0 here, from -180 degrees in calopipe
  if (cylinder_) front = G4Translate3D(0, 0, -depth() / 2) * G4RotateZ3D(pi);
  new calopipe::FastSimulation("calopipe", region, control_, front);
}
