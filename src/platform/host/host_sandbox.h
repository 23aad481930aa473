// HostSandbox: the sandbox and network of one host of a job, and the processes started in it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/subprocess.h"
#include "host/script_mode.h"
#include "jobs/host_plan.h"
#include "sandbox/host_network.h"
#include "sandbox/port_forwarder.h"
#include "sandbox/runtime_view.h"
#include "sandbox/sandbox.h"

namespace yard::host {

struct HostSandboxOptions {
  const jobs::HostPlan* plan = nullptr;  // outlives the sandbox
  jobs::HostFolder folder;
  std::string job_dir;  // names the network that the hosts of the job share
  bool is_root = false;
  bool may_mount = false;              // sandbox::enter_private_mounts() was done
  std::vector<std::string> endpoints;  // URLs on this machine that the job must reach
};

struct Launch {
  std::vector<std::string> command;
  std::map<std::string, std::string> env;
  std::string cwd;
  int output_fd = -1;
  // Where the job's own network does not lead outward and this process needs to: for pip.
  bool needs_outward = false;
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
  // Programs of this machine that the job may call by their names.
  void add_programs(const std::string& dir);
  // A process group of its own; ends with the thread that calls this.
  Result<Subprocess> start(const Launch& launch) const;

 private:
  explicit HostSandbox(HostSandboxOptions options) : options_(std::move(options)) {}
  Status set_up_network();
  Status forward_endpoints();

  const HostSandboxOptions options_;
  std::string scratch_dir_;
  std::unique_ptr<sandbox::HostNetwork> network_;
  std::vector<std::unique_ptr<sandbox::PortForwarder>> forwarders_;
  sandbox::RuntimeView runtime_;
  std::vector<sandbox::Bind> binds_;
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
