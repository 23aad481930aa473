// RankLauncher: the ranks of one host of a platform job, inside its sandbox: `yard launch`.
//
// It is to yard-train what torchrun is to a script: it reads which hosts there are out of
// /opt/ml/input/config/resourceconfig.json, starts this host's ranks with torchrun's variables
// (docs/formats/rank.md), tells their progress in the log, and ends when all of them have ended.
// A rank that dies takes the others with it; the platform starts the job again, which goes on from
// the last checkpoint. On a job of one host it can also be started again in place: the others stay
// and come together with it as the next generation (docs/formats/rank.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "base/stop_token.h"

namespace yard::pipeline {

struct RankKill {
  int rank = 0;
  int64_t after_step = 0;  // global
};

struct LaunchOptions {
  std::vector<std::string> command;
  std::map<std::string, std::string> env;  // of this process
  std::string ml_dir = "/opt/ml";
  std::string job_dir = "/opt/ml/checkpoints";  // heartbeats, checkpoints and results go below it
  int ranks_per_host = 1;
  // The ranks are to end before the recipe's stage of this number (from 0): told by
  // YARD_STOP_AT_STAGE, and asked to save and end where it begins nevertheless; nullopt: none.
  std::optional<int64_t> stop_at_stage;
  std::optional<RankKill> kill;  // once in the life of job_dir
  // How often ranks that died, or lost a peer or the store, are started again in place. Of a job of
  // several hosts none is: the platform starts it again.
  int restarts = 0;
  StopToken stop;  // of a platform job all processes get SIGTERM, so nothing is passed on
  Clock* clock = &Clock::real();
};

// Where this host stands among the job's.
struct HostPlace {
  std::vector<std::string> hosts;  // in the order of their ranks
  int index = 0;
  bool is_first() const { return index == 0; }
};
// kInvalidArgument: `resources` is not what resourceconfig.json has, or our host is not in it.
Result<HostPlace> host_place_from(const Json& resources, std::string_view what);
// A port that all hosts of a job agree on without asking each other. Pure.
uint16_t port_of_job(std::string_view job_name);

// Blocks until the ranks have ended. Where they ended well and the run is complete, its exported
// model lies in ML_DIR/model. Codes: as the rank that failed first said (docs/formats/rank.md),
// kUnavailable where a signal killed it; why stands in ML_DIR/output/failure. Call from a thread
// that lives as long: the ranks end with it.
Status launch_ranks(const LaunchOptions& options);

}  // namespace yard::pipeline
