// The sandbox of a host of a job: mount, pid, ipc and uts namespaces by bubblewrap, /opt/ml as
// SageMaker's containers have it, the runtime read-only or overlaid, and nothing else of the
// machine's files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "sandbox/runtime_view.h"

namespace yard::sandbox {

struct SandboxOptions {
  std::string hostname;
  std::string ml_dir;       // becomes /opt/ml, writable
  std::string scratch_dir;  // tmp and home of the sandbox, its /etc/hosts: see write_scratch()
  std::vector<Bind> binds;  // more, after /opt/ml
  std::string cwd = "/opt/ml";
  std::vector<int> gpus;
  bool as_root = false;           // we are root: capabilities are cut to a container's
  std::string network_namespace;  // path of one to run in; empty: this machine's
  // Names besides those of the job are asked for. Where nobody answers that costs seconds each
  // time.
  bool asks_for_names = true;
};

// The command that runs `program` in the sandbox. All of its processes end with bubblewrap's, and
// that one with ours. Pure.
std::vector<std::string> sandbox_command(const SandboxOptions& options, const RuntimeView& runtime,
                                         const std::vector<std::string>& program);

// Makes the folders of scratch_dir and the files of /etc that are the job's own. `addresses`: of
// all hosts by name.
Status write_scratch(const std::string& scratch_dir, const std::string& hostname,
                     const std::map<std::string, std::string>& addresses);

// From now on what this process mounts is seen by nobody else and goes when it ends, however. Call
// before threads start. kUnavailable: not root.
Status enter_private_mounts();

// The processes that were started below `pid`, itself left out.
std::vector<int> processes_below(int pid);
std::vector<int> children_of(int pid);
// Of processes_below(), those of the sandbox's programs: without its own init.
std::vector<int> sandbox_programs(int bwrap_pid);
// Sends `signal` to all of them but the sandbox's own init, which is the child of `bwrap_pid`.
// Returns how many got it.
int signal_sandbox(int bwrap_pid, int signal);

}  // namespace yard::sandbox
