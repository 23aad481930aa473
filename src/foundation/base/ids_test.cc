#include "base/ids.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

namespace yard {
namespace {

const Clock::Wall kTime{std::chrono::seconds(1'796'015'787)};

TEST(MakeJobName, HoldsPrefixTimeAndARandomEnd) {
  EXPECT_TRUE(std::regex_match(make_job_name("emoji", kTime),
                               std::regex("emoji-20261130-051627-[a-z0-9]{4}")));
}

// The pattern that SageMaker's CreateTrainingJob documents for TrainingJobName.
TEST(MakeJobName, IsASageMakerJobNameWhateverThePrefix) {
  const std::regex valid("[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}");
  for (const std::string prefix : {"a", "", "---", "my job/1", "../x", "Ünï", "-lead", "trail-"}) {
    const auto name = make_job_name(prefix, kTime);
    EXPECT_TRUE(std::regex_match(name, valid)) << name;
  }
  EXPECT_TRUE(make_job_name("trail- ", kTime).starts_with("trail-2026"));
  const auto longest = make_job_name(std::string(200, 'x'), kTime);
  EXPECT_EQ(longest.size(), 63u);
  EXPECT_TRUE(std::regex_match(longest, valid));
}

TEST(RandomName, HasItsLengthAndDoesNotRepeat) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(random_name(12));
  EXPECT_EQ(names.size(), 1000u);
  for (const auto& name : names)
    EXPECT_TRUE(std::regex_match(name, std::regex("[a-z0-9]{12}"))) << name;
  EXPECT_EQ(random_name(0), "");
}

TEST(RandomUuid, IsOfVersionFourAndDoesNotRepeat) {
  const std::regex valid("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
  std::set<std::string> uuids;
  for (int i = 0; i < 1000; ++i) uuids.insert(random_uuid());
  EXPECT_EQ(uuids.size(), 1000u);
  for (const auto& uuid : uuids) EXPECT_TRUE(std::regex_match(uuid, valid)) << uuid;
}

}  // namespace
}  // namespace yard
