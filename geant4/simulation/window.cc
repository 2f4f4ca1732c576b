#include "window.hh"

#include <G4Exception.hh>
#include <G4LogicalVolume.hh>
#include <G4Navigator.hh>
#include <G4TransportationManager.hh>
#include <G4VPhysicalVolume.hh>
#include <Randomize.hh>
#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace calopipe {
namespace {

constexpr double tolerance = 1e-6;      // of lengths, relative
constexpr int most_cells = 1000;        // in a period of the pattern
constexpr double margin_cells = 2;      // between the particle's line and the sides of the volume
constexpr double tolerated_shift = .1;  // in cells, by an angle outside the range

bool whole(double number) { return std::abs(number - std::round(number)) < tolerance; }

// The least length along one axis that holds a whole number of the cells of each layer.
double period_of(const std::vector<Layer>& layers, std::size_t axis) {
  const double first = layers.front().size_mm[axis];
  for (int cells = 1; cells <= most_cells; ++cells) {
    const double length = cells * first;
    if (std::all_of(layers.begin(), layers.end(),
                    [&](const Layer& layer) { return whole(length / layer.size_mm[axis]); })) {
      return length;
    }
  }
  return std::numeric_limits<double>::infinity();  // the pattern does not repeat: the window stands in the middle
}

G4Transform3D middle_of_front(const G4VSolid& solid) {
  G4ThreeVector low, high;
  solid.BoundingLimits(low, high);
  return HepGeom::Translate3D((low.x() + high.x()) / 2, (low.y() + high.y()) / 2, low.z());
}

}  // namespace

Window::Window(std::shared_ptr<const Model> model, const G4LogicalVolume& volume, const G4AffineTransform& to_global,
               const std::optional<G4Transform3D>& front)
    : model_(std::move(model)), solid_(volume.GetSolid()), to_volume_(front ? *front : middle_of_front(*solid_)) {
  from_volume_ = to_volume_.inverse();
  const auto& layers = model_->layers();
  cell_ = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  for (std::size_t number = 0; number < layers.size(); ++number) {
    const Layer& layer = layers[number];
    sensitive_.push_back(sensitive_depth(number, depth_, to_global));
    depth_ += layer.thickness_mm;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      if (!model_->in_rings()) cell_[axis] = std::min(cell_[axis], layer.size_mm[axis]);
      for (std::size_t ring = 1; ring < layer.r_edges_mm.size(); ++ring) {
        cell_[axis] = std::min(cell_[axis], layer.r_edges_mm[ring] - layer.r_edges_mm[ring - 1]);
      }
    }
  }
  if (!model_->in_rings()) period_ = {period_of(layers, 0), period_of(layers, 1)};
}

double Window::sensitive_depth(std::size_t layer, double front, const G4AffineTransform& to_global) const {
  const Layer& of = model_->layers()[layer];
  const int number = static_cast<int>(layer);
  const auto middle = model_->in_rings() ? model_->position_mm(0, 0, number)
                                         : model_->position_mm(of.cells[0] / 2, of.cells[1] / 2, number);
  const auto global = [&](double depth) {
    return to_global.TransformPoint(to_volume_ * HepGeom::Point3D<double>(middle[0], middle[1], depth));
  };
  const G4ThreeVector along = (global(front + of.thickness_mm) - global(front)).unit();
  G4Navigator navigator;
  navigator.SetWorldVolume(
      G4TransportationManager::GetTransportationManager()->GetNavigatorForTracking()->GetWorldVolume());
  const double end = front + of.thickness_mm * (1 - tolerance);
  double at = front + of.thickness_mm * tolerance, widest = 0, found = 0;
  const G4VPhysicalVolume* inside = navigator.LocateGlobalPointAndSetup(global(at), &along, false, false);
  while (inside != nullptr && at < end) {
    double safety = 0;
    const double step = std::min(navigator.ComputeStep(global(at), along, end - at, safety), end - at);
    if (inside->GetLogicalVolume()->GetSensitiveDetector() != nullptr && step > widest) {
      widest = step;
      found = at + step / 2;
    }
    at += std::max(step, of.thickness_mm * tolerance);
    navigator.SetGeometricallyLimitedStep();
    inside = navigator.LocateGlobalPointAndSetup(global(at), &along, true, false);
  }
  if (widest == 0) {
    std::ostringstream line;
    line << "layer " << layer << " of the model, " << front << " to " << front + of.thickness_mm
         << " mm behind the front of " << solid_->GetName() << ", has no sensitive detector on its axis";
    G4Exception("calopipe::FastSimulation", "calopipe003", FatalErrorInArgument, line.str().c_str());
  }
  return found;
}

double Window::tolerance_rad() const { return std::atan(tolerated_shift * std::min(cell_[0], cell_[1]) / depth_); }

std::array<double, 2> Window::stand(const G4ThreeVector& point) const {
  if (model_->in_rings()) return {point.x(), point.y()};
  std::array<double, 2> found{};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    if (std::isfinite(period_[axis]))
      found[axis] = period_[axis] * std::floor(point[static_cast<int>(axis)] / period_[axis] + .5);
  }
  return found;
}

bool Window::holds(const G4ThreeVector& point, const G4ThreeVector& direction) const {
  for (const double depth : {depth_ * tolerance, depth_ * (1 - tolerance)}) {
    const G4ThreeVector on = point + direction * ((depth - point.z()) / direction.z());
    for (const double side : {-margin_cells, margin_cells}) {
      for (const G4ThreeVector& away : {G4ThreeVector(side * cell_[0], 0, 0), G4ThreeVector(0, side * cell_[1], 0)}) {
        if (solid_->Inside(to_volume_ * HepGeom::Point3D<double>(on + away)) == kOutside) return false;
      }
    }
  }
  return true;
}

G4ThreeVector Window::cell(const Deposit& deposit, const std::array<double, 2>& stand) const {
  auto middle = model_->position_mm(deposit.x, deposit.y, deposit.layer);
  const auto layer = static_cast<std::size_t>(deposit.layer);
  const Layer& of = model_->layers()[layer];
  if (model_->in_rings() &&
      of.cells[0] == 1) {  // the cell goes round the axis, and its deposit is anywhere on the ring
    const auto ring = static_cast<std::size_t>(deposit.y);
    const double radius = (of.r_edges_mm[ring] + of.r_edges_mm[ring + 1]) / 2;
    const double angle = CLHEP::twopi * G4UniformRand();
    middle = {radius * std::cos(angle), radius * std::sin(angle), 0};
  }
  return to_volume_ * HepGeom::Point3D<double>(middle[0] + stand[0], middle[1] + stand[1], sensitive_[layer]);
}

}  // namespace calopipe
