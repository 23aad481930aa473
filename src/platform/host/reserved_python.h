// ReservedPython: a sandbox that was made before anybody knows what will run in it, with a Python
// interpreter that has imported what takes long (fork_server.py). It serves one program.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/subprocess.h"

namespace yard::host {

// The arguments that make `python` such an interpreter. `modules`: what it imports besides.
std::vector<std::string> fork_server_command(const std::string& python,
                                             const std::vector<std::string>& modules = {});

struct ReservedProgram {
  std::vector<std::string> command;
  std::map<std::string, std::string> env;
  std::string cwd;
  int output_fd = -1;     // borrowed
  bool is_plain = false;  // by a fresh interpreter: what was imported may be out of date
  // In the process itself, not in a child of it: its number and signals are the program's.
  bool becomes_it = false;
};

// Not thread-safe. The destructor ends the sandbox.
class ReservedPython {
 public:
  // `sandbox` starts the interpreter: its standard input becomes the connection. It ends with the
  // thread that calls this. Codes of Subprocess::spawn().
  static Result<std::unique_ptr<ReservedPython>> start(SubprocessOptions sandbox);

  // The imports are done. False for ever when it ended.
  bool is_ready();
  // The process whose end is the program's; only when is_ready(). kUnavailable: it has ended.
  Result<Subprocess> run(const ReservedProgram& program) &&;

 private:
  ReservedPython(Subprocess process, UniqueFd socket)
      : process_(std::move(process)), socket_(std::move(socket)) {}

  Subprocess process_;
  UniqueFd socket_;
  bool is_ready_ = false;
};

}  // namespace yard::host
