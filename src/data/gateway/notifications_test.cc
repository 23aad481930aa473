#include "gateway/notifications.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "gateway/testing/temp_root.h"

namespace yard::gateway {
namespace {

NotificationRule rule(std::vector<std::string> events, std::string prefix = "",
                      std::string suffix = "") {
  return {"id",
          NotificationRule::TargetKind::kQueue,
          "arn",
          std::move(events),
          std::move(prefix),
          std::move(suffix)};
}

ObjectEvent event(std::string name, std::string key) {
  return {.name = std::move(name),
          .bucket = "b",
          .key = std::move(key),
          .time = Clock::real().wall_now()};
}

TEST(NotificationsTest, ARuleWantsItsEventsOfItsKeys) {
  const ObjectEvent put = event("ObjectCreated:Put", "in/a.jpg");
  EXPECT_TRUE(wants(rule({"s3:ObjectCreated:*"}), put));
  EXPECT_TRUE(wants(rule({"s3:ObjectRemoved:*", "s3:ObjectCreated:Put"}), put));
  EXPECT_TRUE(wants(rule({"s3:ObjectCreated:*"}, "in/", ".jpg"), put));
  EXPECT_FALSE(wants(rule({"s3:ObjectCreated:Copy"}), put));
  EXPECT_FALSE(wants(rule({"s3:ObjectRemoved:*"}), put));
  EXPECT_FALSE(wants(rule({"s3:ObjectCreated:*"}, "out/"), put));
  EXPECT_FALSE(wants(rule({"s3:ObjectCreated:*"}, "", ".png"), put));
}

TEST(NotificationsTest, RulesOutliveARestartAndEndWithTheirBucket) {
  TempRoot folder;
  const std::vector<NotificationRule> rules = {rule({"s3:ObjectCreated:*"}, "p", "s")};
  Notifications first(folder.root().settings().get(), {});
  EXPECT_TRUE(first.rules("b")->empty());
  ASSERT_TRUE(first.set_rules("b", rules));
  Notifications second(folder.root().settings().get(), {});
  EXPECT_EQ(*second.rules("b"), rules);
  EXPECT_TRUE(second.rules("other")->empty());
  ASSERT_TRUE(folder.root().delete_bucket("b"));
  second.forget("b");
  EXPECT_TRUE(second.rules("b")->empty());
}

TEST(NotificationsTest, EventsReachTheSinkOncePerRuleInAnOrderThatCanBeTold) {
  TempRoot folder;
  std::vector<std::pair<std::string, uint64_t>> told;
  Notifications notifications(
      folder.root().settings().get(), [&](const ObjectEvent& event, const NotificationRule& rule) {
        told.emplace_back(event.key + " " + rule.key_prefix, event.sequencer);
      });
  notifications.tell(event("ObjectCreated:Put", "unheard"));
  ASSERT_TRUE(notifications.set_rules(
      "b", {rule({"s3:ObjectCreated:*"}, "a"), rule({"s3:ObjectCreated:*"}, "ab")}));
  notifications.tell(event("ObjectCreated:Put", "abc"));
  notifications.tell(event("ObjectCreated:Put", "a"));
  notifications.tell(event("ObjectRemoved:Delete", "abc"));
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0].first, "abc a");
  EXPECT_EQ(told[1].first, "abc ab");
  EXPECT_EQ(told[2].first, "a a");
  EXPECT_LT(told[0].second, told[2].second);
}

}  // namespace
}  // namespace yard::gateway
