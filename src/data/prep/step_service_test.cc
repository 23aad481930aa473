#include "prep/step_service.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>

#include "base/file.h"
#include "net/http_server.h"

namespace yard::prep {
namespace {

// A service that answers each request of a batch as `answer` says; a status other than 200 is its
// whole answer.
class StepServiceTest : public ::testing::Test {
 protected:
  using Answer = std::function<Json(const Json& request)>;

  StepServiceTest() {
    std::string path = (std::filesystem::temp_directory_path() / "yard-step-XXXXXX").string();
    YARD_CHECK(::mkdtemp(path.data()) != nullptr);
    dir_ = path;
    auto started = HttpServer::start({}, [this](Request& request, ResponseWriter& response) {
      const auto text = request.read_all(1 << 20);
      const Json body = Json::parse(*text, nullptr, false);
      ++posts_;
      if (failures_left_-- > 0) return void(response.send(503, "busy"));
      Json answers = Json::array();
      for (const Json& each : body["requests"]) {
        const Json answer = answer_(each);
        if (answer.is_number()) return void(response.send(answer, "refused"));
        if (!answer.is_null()) answers.push_back(answer);
      }
      (void)response.send(200, Json{{"answers", answers}}.dump());
    });
    YARD_CHECK(started.has_value());
    server_ = *std::move(started);
  }
  ~StepServiceTest() override {
    server_.reset();
    std::filesystem::remove_all(dir_);
  }

  Result<std::vector<StepAnswer>> ask(int count) {
    if (!service_)
      service_ = std::make_unique<StepService>(
          StepSpec{.name = "s", .command = {}, .url = server_->url() + "/look"});
    std::vector<StepRequest> requests;
    for (int i = 0; i < count; ++i) {
      const std::string path = dir_ + "/" + std::to_string(i);
      YARD_CHECK(write_file_atomic(path, "ab"));
      requests.push_back({"k" + std::to_string(i), path, {{"n", i}}});
    }
    return service_->ask(requests, {});
  }

  std::string dir_;
  Answer answer_ = [](const Json& request) {
    return Json{{"id", request["id"]},
                {"fields", {{"key", request["key"]}, {"picture", request["picture"]}}}};
  };
  std::atomic<int> posts_ = 0;
  std::atomic<int> failures_left_ = 0;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<StepService> service_;
};

TEST_F(StepServiceTest, ABatchIsOneRequestWithThePictures) {
  const auto answers = ask(3);
  ASSERT_TRUE(answers) << answers.error().message;
  ASSERT_EQ(answers->size(), 3u);
  EXPECT_EQ((*answers)[2].fields, (Json{{"key", "k2"}, {"picture", "YWI="}}));
  EXPECT_EQ(posts_, 1);
}

TEST_F(StepServiceTest, AServiceThatIsBusyIsAskedAgain) {
  failures_left_ = 2;
  const auto answers = ask(2);
  ASSERT_TRUE(answers);
  EXPECT_EQ((*answers)[0].error, "");
  EXPECT_EQ(posts_, 3);
}

TEST_F(StepServiceTest, APictureThatIsRefusedAloneDoesNotTakeTheOthersAlong) {
  answer_ = [](const Json& request) {
    return request["key"] == "k1" ? Json(422) : Json{{"id", request["id"]}, {"drop", "unsafe"}};
  };
  const auto answers = ask(3);
  ASSERT_TRUE(answers);
  EXPECT_EQ((*answers)[0].drop, "unsafe");
  EXPECT_EQ((*answers)[1].error, "status 422: refused");
  EXPECT_EQ((*answers)[2].drop, "unsafe");
  EXPECT_EQ(posts_, 4);
}

TEST_F(StepServiceTest, AnAnswerThatIsMissingIsAskedForAlone) {
  answer_ = [](const Json& request) {
    return request["key"] == "k0" ? Json() : Json{{"id", request["id"]}};
  };
  const auto answers = ask(2);
  ASSERT_TRUE(answers);
  EXPECT_EQ((*answers)[0].error, "there is no answer for it");
  EXPECT_EQ((*answers)[1].error, "");
}

TEST_F(StepServiceTest, GarbageIsNoAnswerAndEndsTheRunWhenNothingElseComes) {
  answer_ = [](const Json& request) { return Json{{"id", request["id"]}, {"fields", 3}}; };
  EXPECT_TRUE(ask(8));
  const auto ended = ask(1);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace yard::prep
