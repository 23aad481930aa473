// JobFollower: shows a running job to a person until it ends.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "commands.h"
#include "engine/job_control.h"
#include "host/file_tail.h"
#include "jobs/ledger.h"
#include "jobs/progress.h"
#include "jobs/supervisor_event.h"

namespace yard::app {

// The jobs of our YARD_HOME.
Result<engine::JobControl> open_control(const Context& context);

// Only looks: a follower that is closed changes nothing for the job. What happened before it was
// made is not shown.
class JobFollower {
 public:
  JobFollower(engine::JobControl& control, const Context& context, std::string name, int ranks);
  // Ok when the job succeeded; else the error that `yard run` ends with. The first Ctrl-C asks the
  // job to stop, the second kills it.
  Status follow();

 private:
  using Line = std::pair<double, std::string>;  // time, text
  void read_news();
  void add_event(const jobs::SupervisorEvent& event, std::vector<Line>& lines);
  void add_heartbeat(int rank, const jobs::Heartbeat& heartbeat, std::vector<Line>& lines);
  void show(const std::string& text);
  void show_live_line();
  void ask_stop(std::string_view word);
  Status outcome(const jobdb::JobRow& job);

  engine::JobControl& control_;
  const Context& context_;
  std::string name_;
  host::FileTail events_;
  std::vector<host::FileTail> heartbeats_;
  jobs::Progress progress_;
  bool live_line_shown_ = false;
  double live_line_t_ = 0;
  int64_t checkpoint_step_ = 0;
  std::string fault_cause_;
  bool ready_for_kill_ = false;
};

// The ledger as a table for people.
std::string format_ledger(const jobs::Ledger& ledger);
Result<jobs::Ledger> read_ledger(const host::JobFolder& folder);

}  // namespace yard::app
