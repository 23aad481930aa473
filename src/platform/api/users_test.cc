#include "api/users.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "api/audit_log.h"
#include "api/rate_limit.h"
#include "api/testing/signed_client.h"
#include "base/file.h"
#include "base/json.h"
#include "base/testing/fake_clock.h"

namespace yard::api {
namespace {

void write_private(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  ::chmod(path.c_str(), 0600);
}

TEST(UsersTest, TheFirstStartMakesAnAdminAndAKeyForJobsForTheOwnerAlone) {
  TempFolder folder;
  const std::string path = folder / "users.json";
  const auto users = *Users::open(path);
  const auto admin = users->by_name(kFirstUser);
  ASSERT_TRUE(admin);
  EXPECT_EQ(admin->role, Role::kAdmin);
  EXPECT_GE(admin->credentials.secret_key.size(), 40u);
  EXPECT_EQ(users->by_name(kJobsUser)->role, Role::kSubmit);
  struct stat info = {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ((*Users::open(path))->by_name(kFirstUser)->credentials.secret_key,
            admin->credentials.secret_key);
}

TEST(UsersTest, WhatAnotherProcessAddsOrRemovesIsSeenAtOnce) {
  TempFolder folder;
  const auto users = *Users::open(folder / "users.json");
  const auto others = *Users::open(folder / "users.json");
  const auto made = others->add("ana", Role::kRead);
  ASSERT_TRUE(made);
  EXPECT_EQ(users->by_key(made->credentials.access_key)->name, "ana");
  ASSERT_TRUE(others->remove("ana"));
  EXPECT_FALSE(users->by_key(made->credentials.access_key));
}

TEST(UsersTest, NamesAreOneTimeAndPlain) {
  TempFolder folder;
  const auto users = *Users::open(folder / "users.json");
  EXPECT_EQ(users->add("admin", Role::kRead).error().code, Code::kInvalidArgument);
  for (const char* name : {"", "a b", "a/b", "ü"})
    EXPECT_FALSE(users->add(name, Role::kRead)) << name;
  EXPECT_FALSE(users->add(std::string(65, 'a'), Role::kRead));
  EXPECT_EQ(users->remove("nobody").error().code, Code::kNotFound);
  EXPECT_EQ(users->remove("admin").error().code, Code::kInvalidArgument);  // the last one
}

TEST(UsersTest, AKeyThatIsKnownElsewhereIsPutInThePlaceOfTheOld) {
  TempFolder folder;
  const auto users = *Users::open(folder / "users.json");
  ASSERT_TRUE(users->put({"store", Role::kAdmin, {"AKIA1", "s1", ""}}));
  ASSERT_TRUE(users->put({"store", Role::kAdmin, {"AKIA2", "s2", ""}}));
  EXPECT_FALSE(users->by_key("AKIA1"));
  EXPECT_EQ(users->by_key("AKIA2")->credentials.secret_key, "s2");
  EXPECT_FALSE(users->put({"other", Role::kRead, {"AKIA2", "s3", ""}}));
  EXPECT_EQ(users->list().size(), 3u);
}

TEST(UsersTest, ABrokenFileIsAnErrorAtTheStartAndChangesNothingLater) {
  TempFolder folder;
  const std::string path = folder / "users.json";
  const auto users = *Users::open(path);
  const Credentials admin = users->by_name(kFirstUser)->credentials;
  for (
      const char* text :
      {"{", R"({"users": 5})", R"({"userz": []})",
       R"({"users": [{"name": "a", "role": "king", "access_key_id": "k", "secret_access_key": "s"}]})",
       R"({"users": [{"name": "a", "role": "read", "access_key_id": "", "secret_access_key": "s"}]})",
       R"({"users": [{"name": "a", "role": "read", "access_key_id": "k", "secret_access_key": "s"},
                      {"name": "a", "role": "read", "access_key_id": "l", "secret_access_key": "s"}]})"}) {
    write_private(path, text);
    EXPECT_EQ(Users::open(path).error().code, Code::kInvalidArgument) << text;
    EXPECT_TRUE(users->by_key(admin.access_key)) << text;
  }
  ::chmod(path.c_str(), 0644);
  EXPECT_EQ(Users::open(path).error().code, Code::kInvalidArgument);
}

TEST(RateLimitTest, ABucketFillsWithTimeAndIsOfOneKey) {
  FakeClock clock;
  RateLimit limit(2, 4, clock);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(limit.admits("a")) << i;
  EXPECT_FALSE(limit.admits("a"));
  EXPECT_TRUE(limit.admits("b"));
  clock.advance(std::chrono::milliseconds(500));
  EXPECT_TRUE(limit.admits("a"));
  EXPECT_FALSE(limit.admits("a"));
  RateLimit none(0, 0, clock);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(none.admits("a"));
}

TEST(AuditLogTest, TurnsOverAndKeepsTheLastOnes) {
  TempFolder folder;
  FakeClock clock;
  const auto log = *AuditLog::open(
      {.path = folder / "audit.log", .size_bytes_max = 500, .kept_count = 2}, clock);
  AuditEntry entry;
  for (int i = 0; i < 12; ++i) {
    entry.resource = "job-" + std::to_string(i);
    log->write(entry);
  }
  const auto lines_in = [&](const char* name) {
    const auto text = read_file(folder / name);
    return text ? std::count(text->begin(), text->end(), '\n') : 0;
  };
  EXPECT_GT(lines_in("audit.log"), 0);
  EXPECT_GT(lines_in("audit.log.1"), 0);
  EXPECT_GT(lines_in("audit.log.2"), 0);
  EXPECT_EQ(lines_in("audit.log.3"), 0);
  EXPECT_NE(read_file(folder / "audit.log")->find("job-11"), std::string::npos);
}

TEST(AuditLogTest, BytesThatAreNoTextStillMakeALine) {
  TempFolder folder;
  const auto log = *AuditLog::open({.path = folder / "audit.log"}, Clock::real());
  AuditEntry entry;
  entry.resource = "/b/\xff\n\"";
  log->write(entry);
  const std::string text = *read_file(folder / "audit.log");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_TRUE(parse_json(text, "line"));
}

}  // namespace
}  // namespace yard::api
