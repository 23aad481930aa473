// HostSandbox: the sandbox and network of one host of a job, and the processes started in it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/subprocess.h"
#include "host/reserved_python.h"
#include "host/script_mode.h"
#include "jobs/host_plan.h"
#include "sandbox/host_network.h"
#include "sandbox/memory_group.h"
#include "sandbox/port_forwarder.h"
#include "sandbox/runtime_view.h"
#include "sandbox/sandbox.h"

namespace yard::host {

struct HostSandboxOptions {
  const jobs::HostPlan* plan = nullptr;  // copied
  jobs::HostFolder folder;
  std::string network_dir;  // names the network that the hosts of the job share
  bool is_root = false;
  bool may_mount = false;              // sandbox::enter_private_mounts() was done
  std::vector<std::string> endpoints;  // URLs on this machine that the job must reach
  std::string programs_dir;            // of this machine, found last in the job's PATH; empty: none
};

struct Launch {
  std::vector<std::string> command;
  std::map<std::string, std::string> env;
  std::string cwd;
  int output_fd = -1;
  // Where the job's own network does not lead outward and this process needs to: for pip.
  bool needs_outward = false;
  bool keeps_reserve = false;  // not the job's program: the interpreter that waits is not for it
  // Packages were installed since the sandbox was made: an interpreter that waits knows others.
  bool needs_fresh_python = false;
};

// Not thread-safe. Lives as long as its processes.
class HostSandbox {
 public:
  // Removes what an earlier supervisor of this host left; makes network and scratch folder.
  // kUnavailable: a network was demanded and cannot be; the codes of open_runtime().
  static Result<std::unique_ptr<HostSandbox>> open(const HostSandboxOptions& options);
  ~HostSandbox();  // removes the scratch folder

  bool has_own_network() const { return network_ != nullptr; }
  // What the user should know of the network; empty: nothing.
  const std::string& network_note() const { return note_; }
  ScriptMachine machine() const;
  const std::map<std::string, std::string>& runtime_environment() const { return runtime_.env; }
  void add_bind(sandbox::Bind bind) { binds_.push_back(std::move(bind)); }
  // A process group of its own; ends with the thread that calls this. Its first program goes into
  // the sandbox that waits, where there is one that can be used for it.
  Result<Subprocess> start(const Launch& launch);
  const jobs::HostFolder& folder() const { return options_.folder; }
  // Null: there is no limit, or the kernel does not hold it here.
  const sandbox::MemoryGroup* memory() const { return memory_.get(); }
  bool started_warm() const { return started_warm_; }
  // Mounts that a sandbox made earlier does not see.
  void drop_reserve() { reserve_.reset(); }

  // The job has ended and nothing of it runs: its scratch folder goes, and what the next job needs
  // is made below HostFolder::next(), with an interpreter that waits in a sandbox or without. The
  // network stays.
  Status make_ready(bool with_interpreter);
  // After make_ready(): the host of another job, or the next attempt of the same. The folders below
  // next() become those of `options`. What does not fit it any more is made anew.
  Status move_to(const HostSandboxOptions& options);

 private:
  explicit HostSandbox(HostSandboxOptions options) : options_(std::move(options)) {}
  Status set_up_network();
  Status set_up_runtime();
  Status forward_endpoints();
  void limit_memory();
  sandbox::SandboxOptions sandbox_options(const std::string& ml_dir) const;
  SubprocessOptions process_options(const std::vector<std::string>& command) const;
  Status reserve(const std::string& ml_dir);
  std::optional<Result<Subprocess>> start_in_reserve(const Launch& launch);

  HostSandboxOptions options_;
  jobs::HostPlan plan_;  // ours: it outlives the job that it was made for
  std::string scratch_dir_;
  std::unique_ptr<sandbox::HostNetwork> network_;
  std::vector<std::unique_ptr<sandbox::PortForwarder>> forwarders_;
  sandbox::RuntimeView runtime_;
  std::vector<sandbox::Bind> binds_;
  std::unique_ptr<sandbox::MemoryGroup> memory_;
  std::unique_ptr<ReservedPython> reserve_;
  bool started_warm_ = false;
  std::map<std::string, std::string> addresses_;
  std::string note_;
};

// Takes away what a supervisor of this host left when it was killed: its part of the network, dead
// mounts, the scratch folder, processes. Ok when there is nothing.
Status clean_host(const jobs::HostFolder& folder);

// "127.0.0.1" and 9000 of "http://127.0.0.1:9000/x"; nullopt: not this machine's loopback. Pure.
struct LocalPort {
  std::string address;
  uint16_t port = 0;
};
std::optional<LocalPort> local_port_of(const std::string& url);

}  // namespace yard::host
