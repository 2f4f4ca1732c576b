#include "hit_maker.hh"

#include <G4FastTrack.hh>
#include <G4LogicalVolume.hh>
#include <G4TouchableHistory.hh>
#include <G4TransportationManager.hh>
#include <G4VFastSimSensitiveDetector.hh>
#include <G4VPhysicalVolume.hh>
#include <G4VSensitiveDetector.hh>

#include "calopipe/fast_simulation.hh"

namespace calopipe {

HitMaker::HitMaker() : touchable_(new G4TouchableHistory) {}

void HitMaker::begin(const G4FastTrack& track) {
  track_ = &track;
  near_ = false;
  const auto* tracking = G4TransportationManager::GetTransportationManager()->GetNavigatorForTracking();
  if (navigator_.GetWorldVolume() != tracking->GetWorldVolume()) navigator_.SetWorldVolume(tracking->GetWorldVolume());
}

bool HitMaker::make(const G4ThreeVector& position, double energy, double flight) {
  const G4ThreeVector global = track_->GetInverseAffineTransformation()->TransformPoint(position);
  navigator_.LocateGlobalPointAndUpdateTouchable(global, touchable_(), near_);
  near_ = true;
  const G4VPhysicalVolume* volume = touchable_->GetVolume();
  if (volume == nullptr) return false;
  const G4LogicalVolume* logical = volume->GetLogicalVolume();
  G4VSensitiveDetector* detector = logical->GetSensitiveDetector();
  if (detector == nullptr) return false;

  const G4Track& particle = *track_->GetPrimaryTrack();
  if (auto* fast = dynamic_cast<G4VFastSimSensitiveDetector*>(detector)) {
    TimedHit hit(position, energy);
    hit.set_time(particle.GetGlobalTime() + flight);
    fast->Hit(&hit, track_, &touchable_);
    return true;
  }
  step_.SetTrack(const_cast<G4Track*>(&particle));  // G4Step takes no const; sensitive detectors only read
  step_.SetTotalEnergyDeposit(energy);
  for (G4StepPoint* point : {step_.GetPreStepPoint(), step_.GetPostStepPoint()}) {
    point->SetPosition(global);
    point->SetGlobalTime(particle.GetGlobalTime() + flight);
    point->SetLocalTime(particle.GetLocalTime() + flight);
    point->SetProperTime(particle.GetProperTime());
    point->SetMomentumDirection(particle.GetMomentumDirection());
    point->SetKineticEnergy(particle.GetKineticEnergy());
    point->SetWeight(particle.GetWeight());
    point->SetTouchableHandle(touchable_);
    point->SetMaterial(logical->GetMaterial());
    point->SetMaterialCutsCouple(logical->GetMaterialCutsCouple());
    point->SetSensitiveDetector(detector);
    point->SetStepStatus(fUserDefinedLimit);
  }
  detector->Hit(&step_);
  return true;
}

}  // namespace calopipe
