#include "host/host_outcome.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "base/exit_code.h"
#include "base/file.h"
#include "host/host_data.h"
#include "host/host_health.h"
#include "host/host_sandbox.h"
#include "host/job_layout.h"

namespace yard::host {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string path = (fs::temp_directory_path() / "yard-host-XXXXXX").string();
    YARD_CHECK(::mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_; }

 private:
  fs::path path_;
};

TEST(HostOutcome, TheFailureFileComesBeforeWhatWasPrinted) {
  const Folder folder;
  const jobs::HostFolder host{folder.path()};
  EXPECT_EQ(HostEnd::failed(host, 3, "printed").reason, "AlgorithmError: printed, exit code: 3");
  ASSERT_TRUE(make_directories(host.ml() + "/output"));
  write_failure(host, "toolkit");
  write_failure(host, "second");
  EXPECT_EQ(HostEnd::failed(host, 3, "printed").reason, "AlgorithmError: toolkit, exit code: 3");
  ASSERT_TRUE(write_file_atomic(host.ml() + "/output/failure", std::string(5000, 'x')));
  EXPECT_EQ(HostEnd::failed(host, 1, {}).reason,
            "AlgorithmError: " + std::string(1024, 'x') + ", exit code: 1");
}

TEST(HostOutcome, WhoIsToBlameFollowsFromTheCode) {
  using jobs::HostCause;
  const auto cause = [](Code code) { return end_of_preparation({code, "m"}).cause; };
  EXPECT_EQ(cause(Code::kNotFound), HostCause::kUserError);
  EXPECT_EQ(cause(Code::kCorrupt), HostCause::kUserError);
  EXPECT_EQ(cause(Code::kUnavailable), HostCause::kUnavailable);
  EXPECT_EQ(cause(Code::kExhausted), HostCause::kHostFault);
  EXPECT_EQ(cause(Code::kCancelled), HostCause::kStopped);
  EXPECT_EQ(end_of_preparation({Code::kCancelled, "m"}).outcome, jobs::HostOutcome::kStopped);
  EXPECT_EQ(end_of_preparation({Code::kNotFound, "no x"}).reason, "ClientError: no x");
}

TEST(HostOutcome, TheLaunchersCodesForWhatWasLostAreNotTheScriptsFault) {
  using jobs::HostCause;
  const std::vector<std::string> launch = {"/opt/yard/bin/yard", "launch", "--", "yard-train"};
  EXPECT_EQ(cause_of_program(launch, exit_code_of(Code::kUnavailable)), HostCause::kUnavailable);
  EXPECT_EQ(cause_of_program(launch, exit_code_of(Code::kDeadlineExceeded)),
            HostCause::kUnavailable);
  for (const Code code : {Code::kInvalidArgument, Code::kNotFound, Code::kCorrupt, Code::kInternal})
    EXPECT_EQ(cause_of_program(launch, exit_code_of(code)), HostCause::kUserError);
  // Only the launcher speaks this language.
  for (const std::vector<std::string>& other : std::vector<std::vector<std::string>>{
           {"yard"}, {"yard", "prep", "x"}, {"python", "launch"}, {"sh", "-c", "yard launch"}})
    EXPECT_EQ(cause_of_program(other, exit_code_of(Code::kUnavailable)), HostCause::kUserError);
}

TEST(HostOutcome, ATextIsCutBetweenCharacters) {
  EXPECT_EQ(utf8_prefix("abc", 2), "ab");
  EXPECT_EQ(utf8_prefix("abc", 9), "abc");
  EXPECT_EQ(utf8_prefix("a\xc3\xa4z", 2), "a");
  EXPECT_EQ(utf8_prefix("a\xc3\xa4z", 3), "a\xc3\xa4");
  EXPECT_EQ(utf8_prefix("\xf0\x9f\x98\x80", 3), "");
  EXPECT_EQ(utf8_prefix("a\xff"
                        "b",
                        9),
            "a\xef\xbf\xbd"
            "b");
}

TEST(JobLayout, FilesAreThoseOfTheService) {
  const Folder folder;
  jobs::HostPlan plan;
  plan.job = "j";
  plan.host = "algo-1";
  plan.hosts = {{.name = "algo-2", .group = "workers", .instance_type = "ml.b"},
                {.name = "algo-1", .group = "heads", .instance_type = "ml.a"}};
  plan.hyperparameters = {{"lr", "0.1"}};
  plan.channels = {{.config = {{"ChannelName", "train"}, {"ContentType", "text/csv"}}}};
  const std::string ml = folder.path() + "/ml";
  ASSERT_TRUE(make_directories(ml + "/left/over"));
  ASSERT_TRUE(make_layout_folders(plan.kind, ml));
  ASSERT_TRUE(write_layout(plan, ml, "eth0"));
  EXPECT_FALSE(fs::exists(ml + "/left"));
  for (const char* name : {"/model", "/output/data", "/input/data", "/code", "/checkpoints"})
    EXPECT_TRUE(fs::is_directory(ml + name)) << name;
  const auto file = [&](const std::string& name) {
    return *parse_json(*read_file(ml + "/input/config/" + name), name);
  };
  EXPECT_EQ(file("hyperparameters.json"), (Json{{"lr", "0.1"}}));
  EXPECT_EQ(file("inputdataconfig.json"), (Json{{"train",
                                                 {{"ContentType", "text/csv"},
                                                  {"TrainingInputMode", "File"},
                                                  {"S3DistributionType", "FullyReplicated"},
                                                  {"RecordWrapperType", "None"}}}}));
  const Json resource = file("resourceconfig.json");
  EXPECT_EQ(resource["hosts"], Json({"algo-1", "algo-2"}));
  EXPECT_EQ(resource["current_group_name"], "heads");
  EXPECT_EQ(
      resource["instance_groups"][1],
      (Json{{"instance_group_name", "workers"}, {"instance_type", "ml.b"}, {"hosts", {"algo-2"}}}));
}

TEST(JobLayout, PathsOfTheJobStayBelowItsFolder) {
  EXPECT_EQ(*path_in_ml("/j/ml", "/opt/ml/checkpoints/"), "/j/ml/checkpoints");
  EXPECT_EQ(*path_in_ml("/j/ml", "/opt/ml"), "/j/ml");
  for (const char* path : {"/opt/ml/../../etc", "/etc", "opt/ml/x", "/opt/mlx", ""})
    EXPECT_FALSE(path_in_ml("/j/ml", path)) << path;
}

TEST(JobLayout, TheJobGetsCredentialsAndNothingElseOfTheSupervisors) {
  jobs::HostPlan plan;
  plan.region = "eu-1";
  plan.environment = {{"FOO", "bar"}};
  const auto env = platform_environment(
      plan, {{"AWS_ACCESS_KEY_ID", "k"}, {"YARD_HOME", "/root/.trainyard"}, {"SECRET", "s"}});
  EXPECT_EQ(env.at("AWS_ACCESS_KEY_ID"), "k");
  EXPECT_EQ(env.at("FOO"), "bar");
  EXPECT_EQ(env.at("AWS_REGION"), "eu-1");
  EXPECT_FALSE(env.contains("SECRET") || env.contains("YARD_HOME"));
}

TEST(HostData, ResultsLieWhereTheServicePutsThem) {
  jobs::HostPlan plan;
  plan.job = "j";
  plan.output.s3_uri = "s3://b/out/";
  EXPECT_EQ(result_uri(plan, "model"), "s3://b/out/j/output/model.tar.gz");
  plan.output.compress = false;
  EXPECT_EQ(result_uri(plan, "model"), "s3://b/out/j/output/model/");
}

TEST(HostHealth, AFloorThatIsNotReachedFailsByName) {
  const Folder folder;
  jobs::PlanHealth floors;
  floors.free_bytes_min = 1;
  floors.cpu_gflops_min = 1e-6;
  EXPECT_TRUE(judge_health(check_health(floors, folder.path(), {}, {})));
  floors.cpu_gflops_min = 1e9;
  floors.memory_bytes_per_second_min = 1e18;
  floors.gpu_count_min = 1000;
  const Status judged = judge_health(check_health(floors, folder.path(), {}, {}));
  ASSERT_FALSE(judged);
  for (const char* name : {"cpu", "memory", "gpu"})
    EXPECT_NE(judged.error().message.find(name), std::string::npos) << judged.error().message;
  EXPECT_EQ(judged.error().message.find("space"), std::string::npos);
}

TEST(HostHealth, DatesOfHttpAreRead) {
  EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), 784111777.0);
  EXPECT_FALSE(parse_http_date("yesterday"));
  EXPECT_FALSE(parse_http_date(""));
}

TEST(HostSandbox, OnlyLoopbackIsForwarded) {
  EXPECT_EQ(local_port_of("http://127.0.0.1:9000/x")->port, 9000);
  EXPECT_EQ(local_port_of("http://localhost:80")->address, "127.0.0.1");
  EXPECT_EQ(local_port_of("https://127.0.0.2")->port, 443);
  for (const char* url : {"http://10.0.0.1:9000", "https://s3.amazonaws.com", "", "127.0.0.1:1",
                          "http://127.0.0.1:x"})
    EXPECT_FALSE(local_port_of(url)) << url;
}

}  // namespace
}  // namespace yard::host
