// DoorKeeper: answers ranks that come to the doors of a group whose survivors have gone on.
#pragma once

#include <poll.h>

#include <list>
#include <memory>
#include <vector>

#include "base/file.h"
#include "collective/tls_tunnels_internal.h"

namespace yard::collective {

// Doors for the survivors of a failure (reunion_internal.h): of the group and of those that it came
// out of. Open as long as the process takes part.
using KeptDoors = std::vector<std::shared_ptr<UniqueFd>>;

// For one thread at a time. Nobody waits for a guest that says nothing: at most 64 are let in.
class DoorKeeper {
 public:
  // `tunnels` may be null.
  void take(KeptDoors doors, std::shared_ptr<TlsTunnels> tunnels);
  // What look() wants to be called for.
  void append_to(std::vector<pollfd>& polled) const;
  // Lets in and answers whoever is there; does not block.
  void look();

 private:
  KeptDoors doors_;
  std::shared_ptr<TlsTunnels> tunnels_;
  std::list<UniqueFd> guests_;
};

}  // namespace yard::collective
