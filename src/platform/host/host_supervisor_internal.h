// The parts of a host's supervisor, in several files: host_supervisor.cc (its course and what comes
// before the program), host_supervisor_control.cc (what it is told), host_supervisor_program.cc
// (the program, and what follows it).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/stop_token.h"
#include "base/subprocess.h"
#include "channels/download_cache.h"
#include "host/gpu_health.h"
#include "host/host_data.h"
#include "host/host_log.h"
#include "host/host_outcome.h"
#include "host/host_program.h"
#include "host/host_report.h"
#include "host/host_sandbox.h"
#include "host/host_supervisor.h"
#include "host/network_check.h"
#include "host/program_guard.h"
#include "storage/location.h"

namespace yard::host {

// What a host hands on to the next job, or the next attempt, on it.
struct KeptHost {
  std::unique_ptr<HostSandbox> sandbox;  // after HostSandbox::make_ready()
  std::unique_ptr<channels::DownloadCache> cache;
};

// One job on this host, or one attempt of it. For the main thread.
class HostSupervisor {
 public:
  HostSupervisor(const HostSupervisorOptions& options, jobs::HostFolder folder, jobs::HostPlan plan,
                 bool has_mounts, KeptHost kept);

  // `prior`: what a supervisor that vanished after the program's end told last.
  Status open(const std::optional<jobs::HostStatus>& prior);
  jobs::HostStatus run();
  // Only what comes after the program.
  jobs::HostStatus resume();
  // After run(), when the status says is_kept: the folder that is to be supervised next; nullopt:
  // this host is not wanted any more. The status is not written meanwhile.
  std::optional<std::string> await_next();
  KeptHost take_kept() { return std::move(kept_); }

 private:
  // Control: what has come through the FIFO, and its effect on what runs.
  void read_control();
  void hear(std::string_view word);
  bool folder_is_gone() const;
  void ask_stop(std::string_view by);
  void poll_control(int fd, std::chrono::milliseconds timeout);
  void wait_once(int fd, std::chrono::milliseconds timeout);
  // `work` on a thread of its own, while control is read; its token is stopped by a stop where
  // `stop_ends_it`, by "kill" always.
  Status run_beside(const std::function<Status(const StopToken& stop)>& work, bool stop_ends_it);
  void note_progress(jobs::HostStatus& status) const;

  // Before the program.
  std::optional<HostEnd> prepare();
  Status prepare_folders();
  Status prepare_on_thread(HostInput& input, bool& is_unhealthy);
  Status set_up_sandbox();
  HostSandboxOptions sandbox_options() const;
  HostDataOptions data_options();
  std::optional<HostEnd> start_and_wait();
  std::optional<HostEnd> install();
  Result<NetworkVerdict> meet_peers();
  std::optional<HostEnd> check_network();
  std::optional<HostEnd> await_go();

  // The program.
  Result<int> run_program(const Launch& launch, bool may_hang);
  void watch_program(Subprocess& child, ProgramGuard& guard);
  void guard_program(Subprocess& child, ProgramGuard& guard);
  void show_stacks(int pid);
  void await_sandbox_end();
  void check_input();
  HostEnd end_of_program(int code, const Launch& launch);

  // After it.
  void save_checkpoints(HostEnd& end);
  void finish(HostEnd end);
  void await_word();
  void upload();
  void end();
  Status keep_ready();

  const HostSupervisorOptions& options_;
  const jobs::HostFolder folder_;
  const jobs::HostPlan plan_;
  const bool has_mounts_;
  const bool is_root_;
  UniqueFd control_;
  std::unique_ptr<HostReport> report_;
  std::unique_ptr<HostLog> log_;
  std::unique_ptr<storage::Opener> opener_;
  StopSource store_stop_;
  std::unique_ptr<HostProgram> program_plan_;
  GpuHealth gpus_;

  bool stop_asked_ = false;
  bool kill_asked_ = false;
  bool upload_asked_ = false;
  bool release_asked_ = false;
  bool go_asked_ = false;
  bool meet_asked_ = false;
  std::optional<double> keep_s_;  // this host stays for so long after its end
  std::string next_dir_;          // which it is given then
  bool is_waiting_for_next_ = false;
  bool token_seen_ = false;
  bool has_run_ = false;  // else there are no results
  bool has_installed_ = false;
  bool is_working_ = false;
  bool stop_ends_work_ = false;
  StopSource work_stop_;
  Subprocess* program_ = nullptr;
  UniqueFd sandbox_init_;
  std::optional<std::chrono::steady_clock::time_point> kill_at_;
  std::optional<Error> input_error_;
  std::optional<HostEnd> forced_end_;  // why the program was ended by us
  std::chrono::steady_clock::time_point refreshed_at_{};

  channels::ChannelProgress progress_;
  KeptHost kept_;  // its sandbox is moved from while the job runs
  HostInput input_;
  // After what it shows, so that it ends before: mounts lie below its folders.
  std::unique_ptr<HostSandbox> sandbox_;
};

}  // namespace yard::host
