#include "host/host_program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/job_layout.h"

namespace yard::host {
namespace {

constexpr const char* kCode = "/opt/ml/code";

bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

Error no_program() {
  return {Code::kInvalidArgument,
          "no program is named: set the hyperparameter sagemaker_program, or ContainerEntrypoint"};
}

}  // namespace

HostProgram::HostProgram(const jobs::HostPlan& plan, jobs::HostFolder folder,
                         const std::map<std::string, std::string>& own)
    : plan_(plan),
      folder_(std::move(folder)),
      own_(own),
      hyperparameters_(decode_hyperparameters(plan.hyperparameters)),
      is_script_(plan.kind == jobs::HostJobKind::kTraining && plan.entrypoint.empty() &&
                 hyperparameters_.platform.contains("sagemaker_program")) {}

ScriptSource HostProgram::source() const {
  const std::string code = folder_.ml() + "/code";
  return {.has_setup = exists(code + "/setup.py"),
          .has_requirements = exists(code + "/requirements.txt")};
}

std::map<std::string, std::string> HostProgram::environment(const HostSandbox& sandbox) const {
  auto env = sandbox.runtime_environment();
  for (auto& [name, value] : platform_environment(plan_, own_)) env[name] = value;
  if (!plan_.gpus.empty())
    env["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(plan_.gpus, ","));
  if (!is_script_) return env;
  // A user's own setting of a launcher's variable is meant.
  for (auto& [name, value] : script_environment(plan_, hyperparameters_, sandbox.machine()))
    if (name.starts_with("SM_") || !plan_.environment.contains(name)) env[name] = value;
  const auto path = env.find("PYTHONPATH");
  env["PYTHONPATH"] = path == env.end() ? kCode : kCode + (":" + path->second);
  return env;
}

Result<std::optional<Launch>> HostProgram::install(const HostSandbox& sandbox) const {
  if (!is_script_) return std::optional<Launch>();
  YARD_ASSIGN(const std::string program, script_program(hyperparameters_));
  Launch launch;
  launch.command = install_command(source(), program, sandbox.machine());
  if (launch.command.empty()) return std::optional<Launch>();
  launch.env = environment(sandbox);
  launch.cwd = kCode;
  launch.needs_outward = true;
  return std::optional<Launch>(std::move(launch));
}

std::string HostProgram::install_error_name() const {
  return source().has_setup ? "InstallModuleError" : "InstallRequirementsError";
}

Result<Launch> HostProgram::launch_script(const HostSandbox& sandbox) const {
  YARD_ASSIGN(const std::string program, script_program(hyperparameters_));
  const ScriptSource beside = source();
  const std::string path = folder_.ml() + "/code/" + program;
  if (!beside.has_setup && !exists(path))
    return Error{Code::kInvalidArgument, fmt::format("the source holds no '{}'", program)};
  if (!program.ends_with(".py")) ::chmod(path.c_str(), 0777);
  Launch launch;
  YARD_ASSIGN(launch.command, script_command(plan_, hyperparameters_, beside, sandbox.machine()));
  launch.env = environment(sandbox);
  launch.cwd = kCode;
  return launch;
}

Result<Launch> HostProgram::launch(const HostSandbox& sandbox) const {
  if (is_script_) return launch_script(sandbox);
  Launch launch;
  launch.command = plan_.entrypoint;
  launch.command.insert(launch.command.end(), plan_.arguments.begin(), plan_.arguments.end());
  if (plan_.entrypoint.empty()) {
    if (plan_.runtime.root.empty()) return no_program();
    launch.command = {"train"};  // as the service starts an image
  }
  launch.env = environment(sandbox);
  launch.cwd = "/opt/ml";
  return launch;
}

}  // namespace yard::host
