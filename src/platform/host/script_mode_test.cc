#include "host/script_mode.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace yard::host {
namespace {

using Strings = std::vector<std::string>;

jobs::HostPlan two_hosts() {
  jobs::HostPlan plan;
  plan.job = "job";
  plan.host = "algo-2";
  plan.hosts = {{.name = "algo-1", .instance_type = "ml.x"},
                {.name = "algo-2", .instance_type = "ml.x"}};
  plan.hyperparameters = {{"sagemaker_program", "\"train.py\""},
                          {"sagemaker_submit_directory", "\"s3://b/sourcedir.tar.gz\""},
                          {"sagemaker_torch_distributed_enabled", "true"},
                          {"lr", "0.1"},
                          {"name", "abc"},
                          {"flag", "true"},
                          {"lst", "[1, \"x\", null]"},
                          {"opt", R"({"b": 1, "a": "y"})"},
                          {"n", "null"}};
  plan.channels = {{.config = {{"ChannelName", "train"}, {"ContentType", "text/csv"}}}};
  return plan;
}

Strings command_of(const jobs::HostPlan& plan, const ScriptSource& source = {},
                   const ScriptMachine& machine = {.python = "python"}) {
  const auto command =
      script_command(plan, decode_hyperparameters(plan.hyperparameters), source, machine);
  return command ? *command : Strings{"error", command.error().message};
}

TEST(ScriptMode, ArgumentsAreSortedAndShownAsPythonShowsThem) {
  const auto decoded = decode_hyperparameters(two_hosts().hyperparameters);
  EXPECT_EQ(script_arguments(decoded.user),
            (Strings{"--flag", "True", "--lr", "0.1", "--lst", "[1, 'x', None]", "-n", "", "--name",
                     "abc", "--opt", "a=y,b=1"}));
  EXPECT_EQ(script_source(decoded), "s3://b/sourcedir.tar.gz");
  EXPECT_EQ(*script_program(decoded), "train.py");
}

TEST(ScriptMode, NumbersAndTextsAreThoseOfPython) {
  const auto shown = [](const char* json) { return python_str(*parse_json(json, "test")); };
  EXPECT_EQ(shown("1e-5"), "1e-05");
  EXPECT_EQ(shown("0.0001"), "0.0001");
  EXPECT_EQ(shown("1e16"), "1e+16");
  EXPECT_EQ(shown("123456789012345.0"), "123456789012345.0");
  EXPECT_EQ(shown("3.0"), "3.0");
  EXPECT_EQ(shown("-0.5"), "-0.5");
  EXPECT_EQ(shown("12345678901234567890"), "12345678901234567890");
  EXPECT_EQ(shown(R"(["it's", "a\"b'c", "tab\t"])"), R"(["it's", 'a"b\'c', 'tab\t'])");
  EXPECT_EQ(shown(R"({"a": {"b": false}})"), "{'a': {'b': False}}");
}

TEST(ScriptMode, TorchrunGetsTheArgumentsOfTheToolkit) {
  auto plan = two_hosts();
  Strings command = command_of(plan);
  command.resize(14);
  EXPECT_EQ(command, (Strings{"python", "-m", "torch.distributed.run", "--nnodes", "2",
                              "--nproc_per_node", "1", "--master_addr", "algo-1", "--master_port",
                              "7777", "--node_rank", "1", "train.py"}));
  plan.hosts.pop_back();
  plan.host = "algo-1";
  command = command_of(plan, {}, {.gpu_count = 4, .python = "python"});
  command.resize(8);
  EXPECT_EQ(command, (Strings{"python", "-m", "torch.distributed.run", "--nnodes", "1",
                              "--nproc_per_node", "4", "train.py"}));
}

TEST(ScriptMode, ShellScriptsAndPackagesAreStartedAsSuch) {
  auto plan = two_hosts();
  plan.hyperparameters = {{"sagemaker_program", "run.sh"}, {"text", "\"a b'c\""}};
  EXPECT_EQ(command_of(plan), (Strings{"/bin/sh", "-c", R"(./run.sh --text 'a b'"'"'c')"}));
  plan.hyperparameters = {{"sagemaker_program", "pack.py"}};
  EXPECT_EQ(command_of(plan, {.has_setup = true}), (Strings{"python", "-m", "pack"}));
  EXPECT_EQ(install_command({.has_setup = true}, "pack.py", {.python = "python"}).back(), ".");
  EXPECT_TRUE(install_command({}, "pack.py", {}).empty());
  EXPECT_EQ(install_command({.has_requirements = true}, "x.py", {}).back(), "requirements.txt");
  plan.hyperparameters["sagemaker_torch_distributed_enabled"] = "true";
  EXPECT_EQ(command_of(plan, {.has_setup = true})[0], "error");
}

TEST(ScriptMode, MpiRunsOnTheFirstHostAndTheOthersLetItIn) {
  auto plan = two_hosts();
  plan.hyperparameters = {{"sagemaker_program", "t.py"},
                          {"sagemaker_mpi_enabled", "true"},
                          {"sagemaker_mpi_num_of_processes_per_host", "3"},
                          {"sagemaker_mpi_custom_mpi_options", "\"-x A=1 --verbose\""}};
  EXPECT_EQ(command_of(plan), (Strings{"yard", "remote-shell", "--serve"}));
  plan.host = "algo-1";
  Strings command = command_of(plan);
  EXPECT_EQ(Strings(command.begin(), command.begin() + 5),
            (Strings{"mpirun", "--host", "algo-1:3,algo-2:3", "-np", "6"}));
  EXPECT_NE(std::ranges::find(command, "yard remote-shell"), command.end());
  EXPECT_EQ(Strings(command.end() - 7, command.end()),
            (Strings{"-x", "A=1", "--verbose", "python", "-m", "mpi4py", "t.py"}));
  // Where hosts share a network they are one for MPI.
  const auto shared = script_command(plan, decode_hyperparameters(plan.hyperparameters), {},
                                     {.cpu_count = 1, .network_interface = "lo"});
  EXPECT_EQ(shared.error().code, Code::kInvalidArgument);
  plan.hosts = {{.name = "algo-1"}};
  command = command_of(plan);
  EXPECT_EQ(command[2], "algo-1:3");
  EXPECT_EQ(std::ranges::find(command, "yard remote-shell"), command.end());
  EXPECT_EQ(command.back(), "t.py");
}

TEST(ScriptMode, AProgramOutsideOfItsFolderIsRefused) {
  for (const char* name : {"\"../x.py\"", "/bin/x", "-c", "", "\"\"", "1"})
    EXPECT_FALSE(script_program(decode_hyperparameters({{"sagemaker_program", name}}))) << name;
  EXPECT_FALSE(script_program({}));
}

TEST(ScriptMode, VariablesAreThoseOfTheToolkit) {
  const auto plan = two_hosts();
  const auto env = script_environment(plan, decode_hyperparameters(plan.hyperparameters),
                                      {.cpu_count = 2, .network_interface = "eth0"});
  EXPECT_EQ(env.at("SM_HOSTS"), R"(["algo-1","algo-2"])");
  EXPECT_EQ(env.at("SM_CURRENT_HOST"), "algo-2");
  EXPECT_EQ(env.at("SM_CHANNEL_TRAIN"), "/opt/ml/input/data/train");
  EXPECT_EQ(env.at("SM_CHANNELS"), R"(["train"])");
  EXPECT_EQ(env.at("SM_HP_LR"), "0.1");
  EXPECT_EQ(env.at("SM_HP_FLAG"), "true");
  EXPECT_EQ(env.at("SM_HP_N"), "");
  EXPECT_EQ(env.at("SM_MODULE_NAME"), "train");
  EXPECT_EQ(env.at("SM_USER_ENTRY_POINT"), "train.py");
  EXPECT_EQ(env.at("SM_DISTRIBUTION_INSTANCE_GROUPS"), R"(["homogeneousCluster"])");
  EXPECT_EQ(env.at("SM_FRAMEWORK_PARAMS"), R"({"sagemaker_torch_distributed_enabled":true})");
  EXPECT_EQ(env.at("SM_FRAMEWORK_MODULE"), "");
  EXPECT_EQ(env.at("SM_NUM_CPUS"), "2");
  EXPECT_EQ(env.at("SM_LOG_LEVEL"), "20");
  EXPECT_EQ(env.at("MASTER_ADDR"), "algo-1");
  EXPECT_FALSE(env.contains("SM_HP_SAGEMAKER_PROGRAM"));
  const auto training = parse_json(env.at("SM_TRAINING_ENV"), "training env");
  ASSERT_TRUE(training);
  EXPECT_EQ((*training)["is_master"], false);
  EXPECT_EQ((*training)["hyperparameters"]["opt"]["b"], 1);
}

}  // namespace
}  // namespace yard::host
