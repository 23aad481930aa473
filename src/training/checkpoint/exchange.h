// Exchange: how the ranks of a save tell each other what they have and how it went.
//
// Over a collective group of its own where ranks are connected, else through the store that the
// checkpoint goes to.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "collective/collective.h"
#include "storage/object_store.h"

namespace yard::checkpoint {

// Not thread-safe. Every rank makes the same calls in the same order.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Every rank's message, in rank order. kUnavailable: a rank died; kDeadlineExceeded names the
  // ranks that did not come. After an error the exchange is dead.
  virtual Result<std::vector<std::string>> all_gather(std::string_view message) = 0;
  // This rank comes no more: the others must not wait for it. Over a store they learn it late.
  virtual void abandon(std::string_view reason) = 0;
};

// `group` must outlive it, and nobody else may issue operations on it: saving goes on while the
// trainer uses its own group. Groups of one need no peers.
std::unique_ptr<Exchange> exchange_over(collective::Group& group);

struct StoreExchangeOptions {
  int rank = 0;
  int world_size = 1;
  // Names these ranks' attempt: a process of another one is not heard. All ranks give the same.
  std::string run_id;
  uint64_t generation = 0;
  std::chrono::milliseconds timeout{600'000};  // for one message of a living peer
  std::chrono::milliseconds poll_first{2};     // doubled while nobody comes
  std::chrono::milliseconds poll_max{500};
  StopToken stop;
};
// Messages are objects "PREFIX/exchange-RUN-GENERATION/ROUND/RANK", put where there is none yet:
// kInvalidArgument where a rank is there twice. Rank 0 removes those of a round when the next is
// over; the destructor of each rank removes its own last one only where it is alone. `store` and
// `clock` must outlive it. kInvalidArgument: a run id that cannot be in a key.
Result<std::unique_ptr<Exchange>> exchange_over(storage::ObjectStore& store,
                                                std::string_view prefix,
                                                const StoreExchangeOptions& options,
                                                Clock& clock = Clock::real());

}  // namespace yard::checkpoint
