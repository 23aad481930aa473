#include "prep/captions.h"

#include <gtest/gtest.h>

#include "shards/tar_header.h"
#include "storage/memory_store.h"

namespace yard::prep {
namespace {

using Members = std::vector<std::pair<std::string, std::string>>;

std::string tar_of(const Members& members) {
  std::string tar;
  for (const auto& [name, content] : members) {
    const std::vector<std::byte> header = shards::tar_member_header(name, content.size());
    tar.append(reinterpret_cast<const char*>(header.data()), header.size());
    tar += content;
    tar.append(shards::padded_to_block(content.size()) - content.size(), '\0');
  }
  return tar.append(2 * shards::kTarBlockBytes, '\0');
}

class Captions : public ::testing::Test {
 protected:
  void put(std::string_view key, std::string_view content) {
    ASSERT_TRUE(storage::put_text(store_, key, content).has_value());
  }
  Result<std::vector<std::string>> read(std::string_view prefix = "") {
    return read_captions(store_, prefix, "txt", StopToken());
  }
  Code failure() {
    const auto captions = read();
    EXPECT_FALSE(captions.has_value());
    return captions ? Code::kInternal : captions.error().code;
  }

  storage::MemoryStore store_;
};

TEST_F(Captions, AreReadFromShardsAndFilesInOrder) {
  put("b.tar", tar_of({{"1.png", "pixels"},
                       {"1.txt", "red apple\r\n"},
                       {"2.TXT", "green pear"},
                       {"3.seg.txt", "not a caption"}}));
  put("a.txt", "blue plum ");
  put("c.png", "pixels");
  const auto captions = read();
  ASSERT_TRUE(captions.has_value()) << captions.error().message;
  EXPECT_EQ(*captions, (std::vector<std::string>{"blue plum", "red apple", "green pear"}));
}

TEST_F(Captions, OnlyThoseUnderThePrefix) {
  put("one/a.txt", "one");
  put("two/a.txt", "two");
  EXPECT_EQ(*read("two/"), std::vector<std::string>{"two"});
}

TEST_F(Captions, NoneIsNotFound) {
  EXPECT_EQ(failure(), Code::kNotFound);
  put("a.tar", tar_of({{"1.png", "pixels"}}));
  put("b.png", "pixels");
  EXPECT_EQ(failure(), Code::kNotFound);
}

TEST_F(Captions, DamagedShardsAreErrors) {
  const std::string tar = tar_of({{"1.txt", std::string(2000, 'x')}});
  put("a.tar", std::string_view(tar).substr(0, 1500));
  EXPECT_EQ(failure(), Code::kCorrupt);
  put("a.tar", std::string(2048, 'x'));
  EXPECT_EQ(failure(), Code::kInvalidArgument);
}

TEST_F(Captions, CaptionsAboveTheLimitAreExhausted) {
  const std::string text((1 << 20) + 1, 'x');
  put("a.tar", tar_of({{"1.txt", text}}));
  EXPECT_EQ(failure(), Code::kExhausted);
  ASSERT_TRUE(store_.remove("a.tar").has_value());
  put("a.txt", text);
  EXPECT_EQ(failure(), Code::kExhausted);
}

TEST_F(Captions, StopIsObeyed) {
  put("a.tar", tar_of({{"1.txt", "red apple"}}));
  const StopSource source;
  source.request();
  const auto captions = read_captions(store_, "", "txt", source.token());
  ASSERT_FALSE(captions.has_value());
  EXPECT_EQ(captions.error().code, Code::kCancelled);
}

}  // namespace
}  // namespace yard::prep
