#include "api/yard_service.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/testing/memory_desk.h"
#include "api/testing/service_calls.h"
#include "api/testing/signed_client.h"
#include "base/testing/fake_clock.h"
#include "host/process.h"
#include "jobs/host_plan.h"
#include "logs/log_stream.h"

namespace yard::api {
namespace {

class YardServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(desk_.create({.kind = jobs::JobKind::kTraining,
                              .name = "job",
                              .arn = "job",
                              .request = {},
                              .tags = {},
                              .user = "ana"}));
    std::filesystem::create_directories(folder_ / "job/logs");
    std::filesystem::create_directories(folder_ / "job/hosts/algo-1/ml");
  }
  void change(const std::function<void(engine::JobView&)>& how) {
    (void)desk_.change(jobs::JobKind::kTraining, "job", [&](engine::JobView& view) -> Status {
      how(view);
      return Ok{};
    });
  }
  // `status` of the script's progress, one step a second from the clock's now on.
  void print_steps(int from, int to, int total) {
    auto writer = logs::LogWriter::open({.path = folder_ / "job/logs/algo-1.log"});
    ASSERT_TRUE(writer);
    const auto now_ms = static_cast<int64_t>(1000 * to_unix_seconds(clock_.wall_now()));
    for (int i = from; i <= to; ++i)
      ASSERT_TRUE(writer->append_at(now_ms + 1000 * (i - from),
                                    {"step " + std::to_string(i) + "/" + std::to_string(total)}));
  }
  // A process of ours as the supervisor of algo-1.
  void supervise_by(pid_t pid) {
    const auto who = host::identify(pid);
    ASSERT_TRUE(who);
    jobs::HostStatus status;
    status.phase = jobs::HostPhase::kTraining;
    status.phases = {{status.phase, 1}};
    status.supervisor_pid = who->pid;
    status.supervisor_start_ticks = who->start_ticks;
    ASSERT_TRUE(
        write_file_atomic(folder_ / "job/hosts/algo-1/status.json", to_json(status).dump()));
  }
  Json answer(const std::string& operation, const Json& input) {
    return answer_of(*service_, operation, input);
  }
  std::string error(const std::string& operation, const Json& input) {
    return error_code_of(*service_, operation, input);
  }

  TempFolder folder_;
  FakeClock clock_;
  MemoryDesk desk_{folder_.path()};
  FaultInjection faults_{desk_, clock_};
  std::vector<observe::LiveHost> live_;
  std::unique_ptr<Service> service_ = make_yard_service(
      desk_, faults_, [this] { return live_; }, clock_);
};

TEST_F(YardServiceTest, TheFleetHasJobsAndWhatTheirHostsUse) {
  observe::HostUsage usage;
  usage.cpu_percent = 150;
  usage.ranks = {{0, 100, 1e9}, {1, 50, 2e9}};
  usage.gpu = observe::GpuUsage{80, 4e9, 10, 300};
  live_ = {{true, "job", "algo-1", usage}};
  const Json fleet = answer("DescribeFleet", Json::object());
  ASSERT_EQ(fleet["Jobs"].size(), 1u);
  EXPECT_EQ(fleet["Jobs"][0]["User"], "ana");
  ASSERT_EQ(fleet["Hosts"].size(), 1u);
  EXPECT_EQ(fleet["Hosts"][0]["CpuPercent"], 150);
  EXPECT_EQ(fleet["Hosts"][0]["Ranks"][1]["MemoryBytes"], 2e9);
  EXPECT_EQ(fleet["Hosts"][0]["Gpu"]["BusyPercent"], 80);
  change([](engine::JobView& view) { view.status = "Completed"; });
  EXPECT_TRUE(answer("DescribeFleet", Json::object())["Jobs"].empty());
}

TEST_F(YardServiceTest, TheForecastOfARunningJobGoesOnAtItsRateAndPrice) {
  change([](engine::JobView& view) {
    view.billable_s = 50;
    view.cost = 100;  // 2 a second, of all hosts
  });
  print_steps(0, 40, 100);
  clock_.advance(std::chrono::seconds(40));
  const Json cost = answer("DescribeJobCost", {{"JobName", "job"}, {"Forecast", true}});
  EXPECT_NEAR(cost["CostPerHour"].get<double>(), 7200, 1e-6);
  EXPECT_NEAR(cost["Forecast"]["SecondsLeft"].get<double>(), 60, 0.01);
  EXPECT_NEAR(cost["Forecast"]["BillableSeconds"].get<double>(), 110, 0.01);
  EXPECT_NEAR(cost["Forecast"]["Cost"].get<double>(), 220, 0.05);
  EXPECT_FALSE(cost.contains("ForecastErrors"));
}

TEST_F(YardServiceTest, TheErrorOfTheForecastIsToldAtTheEnd) {
  print_steps(0, 100, 100);
  change([](engine::JobView& view) { view.status = "Completed"; });
  const Json cost = answer("DescribeJobCost", {{"JobName", "job"}, {"Forecast", true}});
  ASSERT_EQ(cost["ForecastErrors"].size(), 4u);
  EXPECT_NEAR(cost["ForecastErrors"][0]["ErrorPercent"].get<double>(), 0, 0.1);
  change([](engine::JobView& view) { view.status = "Failed"; });
  EXPECT_FALSE(answer("DescribeJobCost", {{"JobName", "job"}, {"Forecast", true}})
                   .contains("ForecastErrors"));
}

TEST_F(YardServiceTest, AJobThatPrintsNothingHasACostAndNoForecast) {
  const Json cost = answer("DescribeJobCost", {{"JobName", "job"}, {"Forecast", true}});
  EXPECT_FALSE(cost.contains("Forecast"));
  EXPECT_EQ(cost["CostPerHour"], 0);
  EXPECT_EQ(error("DescribeJobCost", {{"JobName", "gone"}}), "ValidationException");
  EXPECT_EQ(error("DescribeJobCost", {{"JobName", "a_b"}}), "ValidationException");
}

TEST_F(YardServiceTest, OnlyAdminsBreakThings) {
  EXPECT_EQ(service_->needed_role("InjectFault"), Role::kAdmin);
  EXPECT_EQ(service_->needed_role("DescribeFleet"), Role::kRead);
}

TEST_F(YardServiceTest, ASupervisorIsKilled) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  supervise_by(child);
  const Json done = answer("InjectFault", {{"Fault", "kill-supervisor"}, {"JobName", "job"}});
  EXPECT_NE(done["Done"].get<std::string>().find("supervisor of job on algo-1"), std::string::npos);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  // Its number may belong to somebody else by now.
  EXPECT_EQ(error("InjectFault", {{"Fault", "kill-supervisor"}, {"JobName", "job"}}),
            "ResourceNotFound");
}

TEST_F(YardServiceTest, FaultsOfWhatIsNotThereAreRefused) {
  supervise_by(::getpid());  // with no sandbox below it
  const auto fault = [&](const char* name, Json more) {
    more["Fault"] = name;
    return error("InjectFault", more);
  };
  EXPECT_EQ(fault("kill-rank", Json::object()), "ValidationException");
  EXPECT_EQ(fault("kill-rank", {{"JobName", "job"}}), "ResourceNotFound");
  EXPECT_EQ(fault("kill-rank", {{"JobName", "job"}, {"Rank", 7}}), "ResourceNotFound");
  EXPECT_EQ(fault("kill-rank", {{"JobName", "gone"}}), "ResourceNotFound");
  EXPECT_EQ(fault("fail-host", {{"JobName", "job"}, {"Host", "algo-2"}}), "ResourceNotFound");
  EXPECT_EQ(fault("fail-slice", {{"JobName", "job"}, {"Host", "algo-2"}}), "ResourceNotFound");
  EXPECT_EQ(fault("fail-slice", Json::object()), "ValidationException");
  EXPECT_EQ(fault("fill-disk", {{"JobName", "job"}}), "ValidationException");
  EXPECT_EQ(fault("free-disk", {{"JobName", "job"}}), "ResourceNotFound");
  EXPECT_EQ(fault("no-such", {{"JobName", "job"}}), "ValidationException");
  EXPECT_EQ(fault("break-store", {{"Seconds", 0}}), "ValidationException");
}

TEST_F(YardServiceTest, ASliceIsDeclaredFaultyAndMended) {
  EXPECT_EQ(answer("InjectFault", {{"Fault", "fail-slice"}, {"JobName", "job"}})["Done"],
            "slice 1, of algo-1 of job, fails its health checks");
  EXPECT_EQ(desk_.faulty_slices, (std::vector{1}));
  EXPECT_EQ(answer("InjectFault", {{"Fault", "mend-slices"}})["Done"],
            "1 faulty slices are well again");
}

TEST_F(YardServiceTest, ADiskIsFilledAndFreed) {
  answer("InjectFault", {{"Fault", "fill-disk"}, {"JobName", "job"}, {"Bytes", 100'000}});
  const std::string path = folder_ / "job/hosts/algo-1/ml/.chaos-ballast";
  EXPECT_EQ(std::filesystem::file_size(path), 100'000u);
  answer("InjectFault", {{"Fault", "free-disk"}, {"JobName", "job"}});
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(YardServiceTest, TheStoreIsBrokenForATimeOrUntilItIsMended) {
  EXPECT_FALSE(faults_.is_store_broken());
  answer("InjectFault", {{"Fault", "break-store"}, {"Seconds", 5}});
  EXPECT_TRUE(faults_.is_store_broken());
  clock_.advance(std::chrono::seconds(6));
  EXPECT_FALSE(faults_.is_store_broken());
  answer("InjectFault", {{"Fault", "break-store"}});
  EXPECT_TRUE(faults_.is_store_broken());
  answer("InjectFault", {{"Fault", "mend-store"}});
  EXPECT_FALSE(faults_.is_store_broken());
}

}  // namespace
}  // namespace yard::api
