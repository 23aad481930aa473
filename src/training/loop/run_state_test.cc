#include "loop/run_state.h"

#include <gtest/gtest.h>

namespace yard::loop {
namespace {

Recipe recipe() {
  Recipe out;
  out.stages = {{.name = "a", .steps = 3, .batch = 2, .learning_rate = 0.1}};
  return out;
}

TEST(RunStateTest, ComesBackFromText) {
  const RunState state{.stage_index = 1,
                       .stage_step = 2,
                       .global_step = 3,
                       .position = {4, 5},
                       .optimizer_step = 6,
                       .scaling_factor = 1 / 3.0,
                       .best = BestLook{"frechet", 1.5}};
  const Json json = *parse_json(to_json(state, recipe(), 2).dump(), "state");
  auto back = run_state_from(json, recipe(), 2, "step-1");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(to_json(*back, recipe(), 2), to_json(state, recipe(), 2));
}

TEST(RunStateTest, AnotherRecipeIsRefusedWithTheFirstKeyThatDiffers) {
  const Json json = to_json({}, recipe(), 1);
  Recipe other = recipe();
  other.stages[0].learning_rate = 0.2;
  auto refused = run_state_from(json, other, 1, "step-1");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "stages.0.learning_rate: 0.1 before, 0.2 now",
                      refused.error().message);
}

TEST(RunStateTest, AnotherWorldSizeIsAccepted) {
  EXPECT_TRUE(run_state_from(to_json({}, recipe(), 4), recipe(), 2, "step-1"));
}

TEST(RunStateTest, DamagedStatesAreRefused) {
  Json json = to_json({}, recipe(), 1);
  json["stage_index"] = 2;
  EXPECT_FALSE(run_state_from(json, recipe(), 1, "step-1"));
  json = to_json({}, recipe(), 1);
  json.erase("epoch");
  EXPECT_FALSE(run_state_from(json, recipe(), 1, "step-1"));
  EXPECT_FALSE(run_state_from(Json::array(), recipe(), 1, "step-1"));
}

TEST(RunStateTest, FirstDifferenceNamesKeysThatCameOrWent) {
  EXPECT_FALSE(first_difference({{"a", 1}}, {{"a", 1}}));
  EXPECT_EQ(first_difference({{"a", {{"b", 1}}}}, {{"a", Json::object()}}),
            "a.b: 1 before, absent now");
  EXPECT_EQ(first_difference({{"a", {1, 2}}}, {{"a", {1, 3}}}), "a.1: 2 before, 3 now");
}

}  // namespace
}  // namespace yard::loop
