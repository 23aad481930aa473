#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace yard {
namespace {

const std::vector<std::string_view> kNames = {"learning_rate", "batch_size", "steps", "seed"};

TEST(NearestName, FindsMisspellings) {
  EXPECT_EQ(nearest_name("leraning_rate", kNames), "learning_rate");
  EXPECT_EQ(nearest_name("batchsize", kNames), "batch_size");
  EXPECT_EQ(nearest_name("step", kNames), "steps");
  EXPECT_EQ(nearest_name("sede", kNames), "seed");
}

TEST(NearestName, PrefersTheNearest) {
  EXPECT_EQ(nearest_name("stepz", {"stop", "steps", "ste"}), "steps");
}

TEST(NearestName, FindsNothingForOtherWords) {
  EXPECT_EQ(nearest_name("optimizer", kNames), "");
  EXPECT_EQ(nearest_name("abc", {"abxyz"}), "");  // three edits, and two are near
  EXPECT_EQ(nearest_name("abc", {"abxy"}), "abxy");
  EXPECT_EQ(nearest_name("x", {}), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 'a'), kNames), "");
}

TEST(Suggestion, ListsAllWhenNoneIsNear) {
  EXPECT_EQ(suggestion("stepps", kNames), ", did you mean 'steps'?");
  EXPECT_EQ(suggestion("zzzzzzz", {"a_name", "b_name"}), " (known: a_name, b_name)");
}

}  // namespace
}  // namespace yard
