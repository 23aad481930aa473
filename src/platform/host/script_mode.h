// Script mode: what the training toolkit of AWS's containers makes of hyperparameters, without the
// toolkit. Pure; the reference is sagemaker-training 5.1.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "jobs/host_plan.h"

namespace yard::host {

// What of the machine goes into variables and command.
struct ScriptMachine {
  int cpu_count = 1;
  int gpu_count = 0;
  std::string network_interface = "eth0";
  std::string python = "python3";  // as the sandbox sees it
};

// Hyperparameters as JSON where they are JSON, as text where not; those of the platform
// ("sagemaker_...") apart from the user's.
struct ScriptHyperparameters {
  Json user = Json::object();
  Json platform = Json::object();
};
ScriptHyperparameters decode_hyperparameters(const std::map<std::string, std::string>& raw);

// "--epochs 3 --flag True": sorted, values as Python's str() shows them.
std::vector<std::string> script_arguments(const Json& user);
// str() of what json.loads() gave.
std::string python_str(const Json& value);

// The program's name; kInvalidArgument: none is given, or it leaves the source's folder.
Result<std::string> script_program(const ScriptHyperparameters& hyperparameters);
// s3:// URL of the source; empty: /opt/ml/code is what a channel or the image put there.
std::string script_source(const ScriptHyperparameters& hyperparameters);

// SM_HOSTS, SM_CHANNEL_TRAIN, SM_HP_LR, ... and what the launcher sets for torch.distributed.
std::map<std::string, std::string> script_environment(const jobs::HostPlan& plan,
                                                      const ScriptHyperparameters& hyperparameters,
                                                      const ScriptMachine& machine);

// What lies beside the program in the source.
struct ScriptSource {
  bool has_setup = false;         // setup.py: a package
  bool has_requirements = false;  // requirements.txt
};
// The command that installs what the source needs; empty: nothing.
std::vector<std::string> install_command(const ScriptSource& source, const std::string& program,
                                         const ScriptMachine& machine);
// Runs in /opt/ml/code. kInvalidArgument: a launcher that this program or job cannot have.
Result<std::vector<std::string>> script_command(const jobs::HostPlan& plan,
                                                const ScriptHyperparameters& hyperparameters,
                                                const ScriptSource& source,
                                                const ScriptMachine& machine);

// What the toolkit writes into /opt/ml/output/failure: `kind` as "ExecuteUserScriptError"; `error`
// is what the program printed last.
std::string script_failure(std::string_view kind, int exit_code, const std::string& error,
                           const std::vector<std::string>& command);

}  // namespace yard::host
