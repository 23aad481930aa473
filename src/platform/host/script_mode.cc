#include "host/script_mode.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>

#include "channels/tar_tree.h"
#include "host/job_layout.h"

namespace yard::host {
namespace {

constexpr std::array<std::string_view, 9> kPlatformNames = {"sagemaker_program",
                                                            "sagemaker_submit_directory",
                                                            "sagemaker_enable_cloudwatch_metrics",
                                                            "sagemaker_region",
                                                            "sagemaker_container_log_level",
                                                            "sagemaker_job_name",
                                                            "default_user_module_name",
                                                            "_tuning_objective_metric",
                                                            "sagemaker_s3_output"};
// Each of these makes all hosts of the group take part in one launch.
constexpr std::array kDistributions = {"sagemaker_mpi_enabled",
                                       "sagemaker_parameter_server_enabled",
                                       "sagemaker_distributed_dataparallel_enabled",
                                       "sagemaker_pytorch_ddp_enabled",
                                       "sagemaker_pytorch_xla_multi_worker_enabled",
                                       "sagemaker_multi_worker_mirrored_strategy_enabled",
                                       "sagemaker_torch_distributed_enabled"};
constexpr const char* kMasterPort = "7777";
constexpr std::string_view kMl = "/opt/ml";

bool is_set(const Json& object, std::string_view name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

Json value_or(const Json& object, std::string_view name, Json fallback) {
  const auto found = object.find(name);
  return found == object.end() ? fallback : *found;
}

// The value of a variable: text as it is, everything else as compact JSON.
std::string variable_text(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string without_py(const std::string& program) {
  return program.ends_with(".py") ? program.substr(0, program.size() - 3) : program;
}

std::string shell_quoted(const std::string& text) {
  const auto is_safe = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("@%+=:,./-_").find(char(c)) != std::string::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_safe)) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\"'\"'" : std::string(1, c);
  return out + "'";
}

// The properties of the toolkit's environment, by name.
Json environment_json(const jobs::HostPlan& plan, const ScriptHyperparameters& hyperparameters,
                      const ScriptMachine& machine) {
  const Json resource = resource_config_json(plan, machine.network_interface);
  const Json& groups = resource["instance_groups"];
  const std::string own_group = resource["current_group_name"];
  Json framework = Json::object();
  for (const auto& [name, value] : hyperparameters.platform.items())
    if (std::ranges::find(kPlatformNames, name) == kPlatformNames.end()) framework[name] = value;
  Json group_names = Json::array(), by_name = Json::object(), own_hosts = Json::array();
  for (const Json& group : groups) {
    group_names.push_back(group["instance_group_name"]);
    by_name[group["instance_group_name"].get<std::string>()] = group;
    if (group["instance_group_name"] == own_group) own_hosts = group["hosts"];
  }
  const bool is_distributed = std::ranges::any_of(
      kDistributions, [&](const char* name) { return is_set(framework, name); });
  const Json distributed = value_or(framework, "sagemaker_distribution_instance_groups",
                                    is_distributed ? Json::array({own_group}) : Json::array());
  Json distribution_hosts = Json::array();
  for (const Json& group : groups)
    if (std::ranges::find(distributed, group["instance_group_name"]) != distributed.end())
      for (const Json& host : group["hosts"]) distribution_hosts.push_back(host);
  const Json master = distribution_hosts.empty() ? resource["hosts"][0] : distribution_hosts[0];
  const Json program = value_or(hyperparameters.platform, "sagemaker_program", nullptr);
  const std::string program_text = program.is_string() ? program.get<std::string>() : "None";
  const auto module = plan.environment.find("SAGEMAKER_TRAINING_MODULE");
  const Json inputs = input_data_config_json(plan);
  Json channels = Json::object();
  for (const auto& [name, config] : inputs.items())
    channels[name] = fmt::format("{}/input/data/{}", kMl, name);
  return {
      {"additional_framework_parameters", framework},
      {"channel_input_dirs", channels},
      {"current_host", resource["current_host"]},
      {"current_instance_group", own_group},
      {"current_instance_group_hosts", own_hosts},
      {"current_instance_type", resource["current_instance_type"]},
      {"distribution_hosts", distribution_hosts},
      {"distribution_instance_groups", distributed},
      {"framework_module", module == plan.environment.end() ? Json(nullptr) : Json(module->second)},
      {"hosts", resource["hosts"]},
      {"hyperparameters", hyperparameters.user},
      {"input_config_dir", "/opt/ml/input/config"},
      {"input_data_config", inputs},
      {"input_dir", "/opt/ml/input"},
      {"instance_groups", group_names},
      {"instance_groups_dict", by_name},
      {"is_hetero", group_names.size() > 1},
      {"is_master", resource["current_host"] == master},
      {"is_modelparallel_enabled", nullptr},
      {"is_smddpmprun_installed", false},
      {"is_smddprun_installed", false},
      {"job_name", plan.job},
      {"log_level", value_or(hyperparameters.platform, "sagemaker_container_log_level", 20)},
      {"master_hostname", master},
      {"model_dir", "/opt/ml/model"},
      {"module_dir", python_str(value_or(hyperparameters.platform, "sagemaker_submit_directory",
                                         "/opt/ml/code"))},
      {"module_name", without_py(program_text)},
      {"network_interface_name", machine.network_interface},
      {"num_cpus", machine.cpu_count},
      {"num_gpus", machine.gpu_count},
      {"num_neurons", 0},
      {"output_data_dir", "/opt/ml/output/data"},
      {"output_dir", "/opt/ml/output"},
      {"output_intermediate_dir", "/opt/ml/output/intermediate"},
      {"resource_config", resource},
      {"topology", nullptr},
      {"user_entry_point", program}};
}

// Of the properties, those that become variables under their own name.
constexpr std::array kVariables = {"hosts",
                                   "network_interface_name",
                                   "user_entry_point",
                                   "resource_config",
                                   "input_data_config",
                                   "output_data_dir",
                                   "current_host",
                                   "current_instance_type",
                                   "current_instance_group",
                                   "current_instance_group_hosts",
                                   "instance_groups",
                                   "instance_groups_dict",
                                   "distribution_instance_groups",
                                   "is_hetero",
                                   "module_name",
                                   "log_level",
                                   "framework_module",
                                   "input_dir",
                                   "input_config_dir",
                                   "output_dir",
                                   "num_cpus",
                                   "num_gpus",
                                   "num_neurons",
                                   "model_dir",
                                   "module_dir",
                                   "output_intermediate_dir"};

int processes_per_host(const jobs::HostPlan& plan, const ScriptMachine& machine) {
  if (plan.processes_per_host > 0) return plan.processes_per_host;
  return std::max(1, machine.gpu_count);
}

// The hosts that launch together, in the order of their ranks.
std::vector<std::string> launch_hosts(const jobs::HostPlan& plan,
                                      const ScriptHyperparameters& hyperparameters,
                                      const ScriptMachine& machine) {
  const Json all = environment_json(plan, hyperparameters, machine);
  const Json& hosts = all["distribution_hosts"].empty() ? all["hosts"] : all["distribution_hosts"];
  return hosts.get<std::vector<std::string>>();
}

std::vector<std::string> torchrun_command(const jobs::HostPlan& plan,
                                          const std::vector<std::string>& hosts,
                                          const ScriptMachine& machine) {
  std::vector<std::string> command = {machine.python,
                                      "-m",
                                      "torch.distributed.run",
                                      "--nnodes",
                                      std::to_string(hosts.size()),
                                      "--nproc_per_node",
                                      std::to_string(processes_per_host(plan, machine))};
  if (hosts.size() > 1) {
    const auto rank = std::ranges::find(hosts, plan.host) - hosts.begin();
    command.insert(command.end(), {"--master_addr", hosts[0], "--master_port", kMasterPort,
                                   "--node_rank", std::to_string(rank)});
  }
  return command;
}

// Options of a user, without quotes: as the toolkit appends them.
std::vector<std::string> custom_mpi_options(const Json& platform) {
  const Json text = value_or(platform, "sagemaker_mpi_custom_mpi_options", "");
  std::vector<std::string> options;
  if (!text.is_string()) return options;
  std::istringstream words(text.get<std::string>());
  for (std::string word; words >> word;) options.push_back(word);
  return options;
}

// What several hosts need: a way into each other, and the network to talk over.
std::vector<std::string> mpi_network_options(const ScriptMachine& machine) {
  return {"-mca",
          "plm_rsh_agent",
          "yard remote-shell",
          "-mca",
          "plm_rsh_no_tree_spawn",
          "1",
          "--leave-session-attached",
          "-mca",
          "btl_tcp_if_include",
          machine.network_interface,
          "-mca",
          "oob_tcp_if_include",
          machine.network_interface};
}

Result<std::vector<std::string>> mpi_command(const jobs::HostPlan& plan, const Json& platform,
                                             const std::vector<std::string>& hosts,
                                             const ScriptMachine& machine) {
  const Json per_host = value_or(platform, "sagemaker_mpi_num_of_processes_per_host",
                                 processes_per_host(plan, machine));
  const int count = per_host.is_number_integer() ? per_host.get<int>() : 1;
  std::string places;
  for (const std::string& host : hosts)
    places += fmt::format("{}{}:{}", places.empty() ? "" : ",", host, count);
  std::vector<std::string> command = {"mpirun",
                                      "--host",
                                      places,
                                      "-np",
                                      std::to_string(count * static_cast<int>(hosts.size())),
                                      "--allow-run-as-root",
                                      "--tag-output",
                                      "--oversubscribe",
                                      "-bind-to",
                                      "none",
                                      "-mca",
                                      "btl_vader_single_copy_mechanism",
                                      "none",
                                      "-mca",
                                      "orte_abort_on_non_zero_status",
                                      "1"};
  if (hosts.size() > 1)
    for (std::string& option : mpi_network_options(machine)) command.push_back(std::move(option));
  for (std::string& option : custom_mpi_options(platform)) command.push_back(std::move(option));
  command.insert(command.end(), {machine.python, "-m", "mpi4py"});
  return command;
}

Status check_mpi(const std::vector<std::string>& hosts, const ScriptMachine& machine) {
  if (hosts.size() == 1 || machine.network_interface != "lo") return Ok{};
  return Error{Code::kInvalidArgument,
               "MPI over several hosts needs a network of its own for each, which only root can "
               "make: use torch_distributed"};
}

}  // namespace

ScriptHyperparameters decode_hyperparameters(const std::map<std::string, std::string>& raw) {
  ScriptHyperparameters out;
  for (const auto& [name, text] : raw) {
    auto parsed = parse_json(text, name);
    const bool is_platform = name.starts_with("sagemaker_") ||
                             std::ranges::find(kPlatformNames, name) != kPlatformNames.end();
    (is_platform ? out.platform : out.user)[name] = parsed ? *std::move(parsed) : Json(text);
  }
  return out;
}

std::vector<std::string> script_arguments(const Json& user) {
  std::vector<std::string> arguments;
  for (const auto& [name, value] : user.items()) {
    arguments.push_back(name.empty() ? "" : (name.size() > 1 ? "--" : "-") + name);
    if (!value.is_object()) {
      arguments.push_back(python_str(value));
      continue;
    }
    std::string items;
    for (const auto& [key, item] : value.items())
      items += (items.empty() ? "" : ",") + key + "=" +
               (item.is_null() ? std::string("None") : python_str(item));
    arguments.push_back(items);
  }
  return arguments;
}

Result<std::string> script_program(const ScriptHyperparameters& hyperparameters) {
  const Json program = value_or(hyperparameters.platform, "sagemaker_program", nullptr);
  if (!program.is_string() || program.get<std::string>().empty())
    return Error{Code::kInvalidArgument,
                 "no program is named: set the hyperparameter sagemaker_program, or "
                 "ContainerEntrypoint"};
  const std::string name = program.get<std::string>();
  if (name.starts_with('-'))
    return Error{Code::kInvalidArgument, fmt::format("'{}' cannot be a program's name", name)};
  return channels::inner_path(name);
}

std::string script_source(const ScriptHyperparameters& hyperparameters) {
  const Json source = value_or(hyperparameters.platform, "sagemaker_submit_directory", "");
  return source.is_string() ? source.get<std::string>() : "";
}

std::map<std::string, std::string> script_environment(const jobs::HostPlan& plan,
                                                      const ScriptHyperparameters& hyperparameters,
                                                      const ScriptMachine& machine) {
  const Json all = environment_json(plan, hyperparameters, machine);
  std::map<std::string, std::string> env;
  for (const char* name : kVariables) env["SM_" + upper(name)] = variable_text(all[name]);
  Json channel_names = Json::array();
  for (const auto& [name, path] : all["channel_input_dirs"].items()) {
    channel_names.push_back(name);
    env["SM_CHANNEL_" + upper(name)] = variable_text(path);
  }
  for (const auto& [name, value] : hyperparameters.user.items())
    env["SM_HP_" + upper(name)] = variable_text(value);
  env["SM_CHANNELS"] = variable_text(channel_names);
  env["SM_HPS"] = variable_text(hyperparameters.user);
  env["SM_FRAMEWORK_PARAMS"] = variable_text(all["additional_framework_parameters"]);
  env["SM_TRAINING_ENV"] = variable_text(all);
  env["SM_USER_ARGS"] = variable_text(Json(script_arguments(hyperparameters.user)));
  env["CURRENT_HOST"] = plan.host;
  env["SAGEMAKER_JOB_NAME"] =
      variable_text(value_or(hyperparameters.platform, "sagemaker_job_name", plan.job));
  env["SAGEMAKER_REGION"] =
      variable_text(value_or(hyperparameters.platform, "sagemaker_region", plan.region));
  env["MASTER_ADDR"] = variable_text(all["master_hostname"]);
  env["MASTER_PORT"] = kMasterPort;
  env["NCCL_SOCKET_IFNAME"] = machine.network_interface;
  env["NCCL_DEBUG"] = "WARN";
  return env;
}

std::vector<std::string> install_command(const ScriptSource& source, const std::string& program,
                                         const ScriptMachine& machine) {
  std::vector<std::string> pip = {
      machine.python,       "-m",    "pip", "install", "--disable-pip-version-check",
      "--root-user-action", "ignore"};
  if (program.ends_with(".sh") || (!source.has_setup && !program.ends_with(".py"))) return {};
  if (source.has_setup) pip.push_back(".");
  if (source.has_requirements) pip.insert(pip.end(), {"-r", "requirements.txt"});
  if (!source.has_setup && !source.has_requirements) return {};
  return pip;
}

Result<std::vector<std::string>> script_command(const jobs::HostPlan& plan,
                                                const ScriptHyperparameters& hyperparameters,
                                                const ScriptSource& source,
                                                const ScriptMachine& machine) {
  YARD_ASSIGN(const std::string program, script_program(hyperparameters));
  const auto arguments = script_arguments(hyperparameters.user);
  const auto hosts = launch_hosts(plan, hyperparameters, machine);
  const Json& platform = hyperparameters.platform;
  const bool is_package = source.has_setup && !program.ends_with(".sh");
  const bool is_python = is_package || program.ends_with(".py");
  std::vector<std::string> command = {machine.python};
  if (is_set(platform, "sagemaker_torch_distributed_enabled") ||
      is_set(platform, "sagemaker_pytorch_ddp_enabled") ||
      is_set(platform, "sagemaker_distributed_dataparallel_enabled")) {
    if (!is_python || is_package)
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: torchrun needs a Python script", program)};
    command = torchrun_command(plan, hosts, machine);
  } else if (is_set(platform, "sagemaker_mpi_enabled")) {
    YARD_TRY(check_mpi(hosts, machine));
    // Where the first host's mpirun starts its daemon.
    if (plan.host != hosts[0]) return std::vector<std::string>{"yard", "remote-shell", "--serve"};
    YARD_ASSIGN(command, mpi_command(plan, platform, hosts, machine));
  } else if (!is_python) {
    std::string line = "./" + shell_quoted(program);
    for (const std::string& argument : arguments) line += " " + shell_quoted(argument);
    return std::vector<std::string>{"/bin/sh", "-c", line};
  }
  if (is_package) command.push_back("-m");
  command.push_back(is_package ? without_py(program) : program);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

std::string script_failure(std::string_view kind, int exit_code, const std::string& error,
                           const std::vector<std::string>& command) {
  return fmt::format("{}:\nExitCode {}\nErrorMessage \"{}\"\nCommand \"{}\"", kind, exit_code,
                     error, fmt::join(command, " "));
}

}  // namespace yard::host
