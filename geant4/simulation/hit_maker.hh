// Gives deposits to the user's sensitive detectors.
#pragma once

#include <G4Navigator.hh>
#include <G4Step.hh>
#include <G4ThreeVector.hh>
#include <G4TouchableHandle.hh>

class G4FastTrack;

namespace calopipe {

// As G4FastSimHitMaker, but for three things. That one looks for its first deposit at the particle, not at the deposit,
// so that the first shower of each thread differs with the number of threads. It gives a plain sensitive detector the
// position in the envelope's frame as if it were global. And it has no time but the particle's.
class HitMaker {
 public:
  HitMaker();

  // Of a new shower, before its first deposit.
  void begin(const G4FastTrack& track);
  // Gives `energy` at `position`, in the envelope's frame, to the sensitive detector there, `flight` after the particle
  // entered. Says whether there is one.
  bool make(const G4ThreeVector& position, double energy, double flight);

 private:
  G4Navigator navigator_;
  G4TouchableHandle touchable_;
  G4Step step_;
  const G4FastTrack* track_ = nullptr;
  bool near_ = false;  // whether the last place is of this shower
};

}  // namespace calopipe
