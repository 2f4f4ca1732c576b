// Gives deposits to the user's sensitive detectors.
#pragma once

#include <G4Navigator.hh>
#include <G4Step.hh>
#include <G4ThreeVector.hh>
#include <G4TouchableHandle.hh>

class G4FastTrack;

namespace calopipe {

// Does what G4FastSimHitMaker does, but differs in three things. G4FastSimHitMaker
// - looks for its first deposit at the particle, not at the deposit; so the first shower of each thread differs with
//   the number of threads;
// - gives a plain sensitive detector the position in the envelope's frame, as if this were the global position;
// - has no time but the particle's.
class HitMaker {
 public:
  HitMaker();

  // Begins a shower. Call this before the shower's first deposit.
  void begin(const G4FastTrack& track);
  // Gives `energy` to the sensitive detector at `position`, in the envelope's frame. The time is `flight` after the
  // particle entered. Returns whether there is a sensitive detector.
  bool make(const G4ThreeVector& position, double energy, double flight);

 private:
  G4Navigator navigator_;
  G4TouchableHandle touchable_;
  G4Step step_;
  const G4FastTrack* track_ = nullptr;
  bool near_ = false;  // whether the navigator's last place is of this shower
};

}  // namespace calopipe
