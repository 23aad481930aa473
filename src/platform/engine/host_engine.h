// HostEngine: hosts for the jobs of the platform: where they come from, and the supervisor on each.
//
// local_host_engine.h: slices of this machine. A scheduler (Slurm) comes behind the same interface:
// place() asks for an allocation and answers kExhausted until it is granted, start() runs the
// supervisor inside it, the folder lies on a file system that all see.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "jobs/host_plan.h"
#include "jobs/slices.h"

namespace yard::engine {

// What is known of the supervisor of one host folder (jobs::HostFolder).
struct HostLook {
  std::optional<jobs::HostStatus> status;  // status.json of the present attempt
  bool is_alive = false;                   // it runs, or is just being started
  std::string lost_reason;                 // why it is not, when that is not its proper end
};

// Used by one thread. A host is known by its folder. Every call may be repeated: after a crash of
// the daemon nobody knows which were made. Nothing here waits for a host.
class HostEngine {
 public:
  virtual ~HostEngine() = default;

  // As jobs::place_slices(): kExhausted: not now; kInvalidArgument: never.
  virtual Result<std::vector<jobs::Slice>> place(const std::vector<jobs::Slice>& held,
                                                 const std::vector<std::string>& instance_types,
                                                 const std::vector<int>& avoid) = 0;
  // Starts `yard host` on DIR, whose plan.json is there, on the slice; nothing when it runs
  // already, or has told anything; but one that vanished after its script's end goes on from there.
  // A supervisor that is kept (HostStatus::is_kept) in `kept_dir` takes the folder over, where that
  // is not empty and there is one. Codes of Subprocess::spawn().
  virtual Status start(const std::string& dir, const jobs::Slice& slice,
                       const std::string& kept_dir) = 0;
  virtual HostLook look(const std::string& dir) = 0;
  // A word for the supervisor. kUnavailable: it does not listen, or not yet.
  virtual Status send(const std::string& dir, std::string_view word) = 0;
  // Ends the supervisor at once, and begins to end what it leaves; look() says when both are done.
  virtual void kill(const std::string& dir) = 0;
  // The attempt is over and nothing of it runs: its status.json goes out of the way.
  virtual Status retire(const std::string& dir, int attempt) = 0;
  virtual void forget(const std::string& dir) = 0;

  // Readable when hosts may have moved on; changed() then says which, and makes it unreadable.
  virtual int fd() const = 0;
  virtual std::vector<std::string> changed() = 0;
};

}  // namespace yard::engine
