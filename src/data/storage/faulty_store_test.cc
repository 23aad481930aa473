#include "storage/testing/faulty_store.h"

#include <gtest/gtest.h>

#include "storage/memory_store.h"

namespace yard::storage::testing {
namespace {

// Every method once, in the order of Method; returns the methods that failed.
std::vector<Method> failures(ObjectStore& store) {
  std::vector<Method> failed;
  const auto note = [&](Method method, bool ok) {
    if (!ok) failed.push_back(method);
  };
  std::vector<std::byte> one(1);
  note(Method::kGetRange, store.get_range("k", "", 0, one).has_value());
  note(Method::kHead, store.head("k").has_value());
  note(Method::kList, store.list({}).has_value());
  note(Method::kPut, store.put("k2", one, {}).has_value());
  auto upload = store.upload("k3");
  note(Method::kUpload, upload.has_value());
  if (upload) {
    note(Method::kWrite, (*upload)->write(one).has_value());
    note(Method::kCommit, (*upload)->commit().has_value());
  }
  note(Method::kCopy, store.copy("k", "k4", {}).has_value());
  note(Method::kRemove, store.remove("k").has_value());
  return failed;
}

TEST(FaultyStoreTest, TheCallOfThatNumberFailsOnEveryMethod) {
  for (int number = 0; number < 9; ++number) {
    MemoryStore inner;
    ASSERT_TRUE(put_text(inner, "k", "x"));
    FaultyStore store(inner, [&](const Call& call) -> Status {
      if (call.number == uint64_t(number)) return Error{Code::kUnavailable, "injected"};
      return Ok{};
    });
    EXPECT_EQ(failures(store), std::vector<Method>{static_cast<Method>(number)});
  }
}

TEST(FaultyStoreTest, AFailedCallDoesNotReachTheStore) {
  MemoryStore inner;
  ASSERT_TRUE(put_text(inner, "k", "x"));
  FaultyStore store(inner, [](const Call&) -> Status {
    return Error{Code::kUnavailable, "injected"};
  });
  EXPECT_EQ(failures(store).size(), 7U);  // write and commit need an upload
  EXPECT_EQ(list_all(inner, "")->size(), 1U);
}

TEST(MemoryStoreTest, AFullStoreIsExhaustedAndKeepsWhatItHas) {
  MemoryStore store(10);
  ASSERT_TRUE(put_text(store, "a", "12345678"));
  EXPECT_EQ(put_text(store, "b", "123").error().code, Code::kExhausted);
  EXPECT_TRUE(put_text(store, "a", "1234567890"));
  EXPECT_FALSE(put_text(store, "a", "12345678901"));
  EXPECT_EQ(*get_all(store, "a"), "1234567890");
  EXPECT_TRUE(store.remove("a"));
  EXPECT_TRUE(put_text(store, "b", "123"));
}

}  // namespace
}  // namespace yard::storage::testing
