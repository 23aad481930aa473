// Subprocess: a child in a process group of its own, watched by pidfd.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace yard {

struct SubprocessOptions {
  std::vector<std::string> argv;           // argv[0] without '/' is looked up in env's PATH
  std::map<std::string, std::string> env;  // the whole environment of the child
  std::string cwd;                         // empty: ours
  int stdin_fd = -1;                       // -1: /dev/null
  int stdout_fd = -1;                      // -1: ours. Borrowed, duplicated into the child
  int stderr_fd = -1;
  bool new_process_group = true;  // so that kill_group() reaches its children too
  bool kill_with_parent = false;  // SIGKILL when the *thread* that called spawn() ends
  std::vector<int> cpus;          // CPU affinity; empty: ours
};

struct ExitStatus {
  int code = 0;    // exit code; 128 + signal when killed
  int signal = 0;  // 0 when it exited by itself
  bool ok() const { return code == 0 && signal == 0; }
};

// Move-only, for one thread at a time. The destructor kills the group with SIGKILL and reaps,
// unless detached. Of our descriptors the child gets the three standard ones and no others; signal
// handlers and masks are reset. The child stays a zombie until the destructor, so that its process
// number, hence its group, cannot become somebody else's while kill_group() may be called.
// spawn() returns once the program runs. kNotFound: no such program; kInvalidArgument: not
// executable, no such cwd or CPU; kExhausted: no process or descriptor left.
class Subprocess {
 public:
  static Result<Subprocess> spawn(const SubprocessOptions& options);
  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&& other) noexcept;
  ~Subprocess();

  int pid() const { return pid_; }
  int pidfd() const { return pidfd_; }  // readable (POLLIN) when the child has ended
  Status kill(int signal) const;        // the child alone; Ok when it has already ended
  Status kill_group(int signal) const;  // everything in its group; without one, the child alone
  // kDeadlineExceeded when it still runs after `timeout`. May be called again after an exit.
  Result<ExitStatus> wait(std::chrono::milliseconds timeout);
  // Lets the child outlive this object; it is no longer reaped by us. Afterwards only pid() may be
  // called.
  void detach();

 private:
  Subprocess() = default;
  void end();  // what the destructor does

  int pid_ = -1;
  int pidfd_ = -1;
  bool leads_group_ = false;
  bool ended_ = false;  // exit_ is known; the zombie stays until end()
  ExitStatus exit_;
};

// This process's environment as a map, the start for SubprocessOptions::env. For apps/ and tests.
std::map<std::string, std::string> environment();

}  // namespace yard
