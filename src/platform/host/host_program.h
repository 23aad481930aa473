// HostProgram: what is run in the sandbox of a host, and with which environment: script mode, an
// entry point, or the image's "train".
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/result.h"
#include "host/host_sandbox.h"
#include "host/script_mode.h"
#include "jobs/host_plan.h"

namespace yard::host {

// Immutable; what it is made of outlives it.
class HostProgram {
 public:
  // `own`: the supervisor's environment.
  HostProgram(const jobs::HostPlan& plan, jobs::HostFolder folder,
              const std::map<std::string, std::string>& own);

  bool is_script() const { return is_script_; }
  // What installs the source's requirements; nullopt: there are none. kInvalidArgument: as
  // launch().
  Result<std::optional<Launch>> install(const HostSandbox& sandbox) const;
  // "InstallRequirementsError", or of a package "InstallModuleError".
  std::string install_error_name() const;
  // kInvalidArgument: no program is named, the source does not hold it, or it cannot be launched
  // so.
  Result<Launch> launch(const HostSandbox& sandbox) const;

 private:
  ScriptSource source() const;
  std::map<std::string, std::string> environment(const HostSandbox& sandbox) const;
  Result<Launch> launch_script(const HostSandbox& sandbox) const;

  const jobs::HostPlan& plan_;
  const jobs::HostFolder folder_;
  const std::map<std::string, std::string>& own_;
  const ScriptHyperparameters hyperparameters_;
  const bool is_script_;
};

}  // namespace yard::host
