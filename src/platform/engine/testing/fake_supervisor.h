// FakeSupervisor: `yard host DIR` as a script. The test's own program plays it: call it with
// "host --foreground DIR" or "host --clean DIR", and it does what the plan's environment says under
// SCRIPT, then ends instead of running tests. For whatever else the program is to play, see
// play_program().
//
//   (nothing)      every phase at once, completed
//   exit=N         the script fails with N
//   wait           it trains until it is told to stop
//   ms=N           it trains for N milliseconds
//   lose=A:HOST    in attempt A the supervisor of HOST dies by SIGKILL while it trains
//   leave=A:HOST   in attempt A that of HOST says that it was stopped from outside
//   start_only     it never gets a status out
//   fail_upload    the store refuses the results
//
// Words are separated by spaces. A slice that is declared faulty fails its health check, as any
// floor that no machine reaches. Each training adds a line to DIR/runs.log.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace yard::engine {

// Registers what the test program does when its first argument is `name`; the result is its exit
// code. Returns a value, so that it can be called at namespace scope.
bool play_program(const std::string& name,
                  std::function<int(const std::vector<std::string>& arguments)> program);

// The path of this program.
std::string own_program();

}  // namespace yard::engine
