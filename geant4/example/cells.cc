#include "cells.hh"

#include <G4Step.hh>
#include <G4TouchableHandle.hh>
#include <algorithm>

Cells::Cells(const Shape& shape, const std::array<int, 3>& levels)
    : G4VSensitiveDetector("cells"), shape_(shape), levels_(levels), energy_(shape.size()) {}

void Cells::Initialize(G4HCofThisEvent*) {
  std::fill(energy_.begin(), energy_.end(), 0.0);
  total_ = time_ = 0;
  place_ = {};
}

G4bool Cells::ProcessHits(G4Step* step, G4TouchableHistory*) {
  const double energy = step->GetTotalEnergyDeposit();
  if (energy <= 0) return false;
  const G4StepPoint& point = *step->GetPreStepPoint();
  std::size_t index = 0;
  for (std::size_t axis = 0; axis < levels_.size(); ++axis) {
    index = index * static_cast<std::size_t>(shape_.cells[axis]) +
            static_cast<std::size_t>(point.GetTouchable()->GetCopyNumber(levels_[axis]));
  }
  energy_[index] += energy;
  total_ += energy;
  time_ += energy * point.GetGlobalTime();
  place_ += energy * point.GetPosition();
  return true;
}
