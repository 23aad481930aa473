#include "channels/tar_tree.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/subprocess.h"
#include "shards/tar_header.h"

namespace yard::channels {
namespace {

namespace fs = std::filesystem;

class TarTree : public ::testing::Test {
 protected:
  TarTree() {
    std::string path = (fs::temp_directory_path() / "yard-tar-XXXXXX").string();
    YARD_CHECK(::mkdtemp(path.data()) != nullptr);
    root_ = path;
  }
  ~TarTree() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& content) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << content;
  }
  std::string text(const std::string& path) {
    const auto content = read_file(root_ / path);
    return content ? *content : "error: " + content.error().message;
  }
  void pack(const std::vector<std::string>& folders, const std::string& archive, bool compress) {
    std::ofstream out(root_ / archive, std::ios::binary);
    const ByteSink to_file = [&](std::span<const std::byte> bytes) -> Status {
      out.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
      return Ok{};
    };
    ParallelGzip gzip(3, to_file);
    const Status packed = write_tar(folders, [&](std::span<const std::byte> bytes) {
      return compress ? gzip.write(bytes) : to_file(bytes);
    });
    ASSERT_TRUE(packed) << packed.error().message;
    if (compress) {
      ASSERT_TRUE(gzip.finish());
    }
  }
  // A member with a header as it is given, for what no honest packer writes.
  void add_raw(std::string& archive, const std::string& name, char type, const std::string& link,
               const std::string& content = {}) {
    auto header = shards::tar_member_header(name, content.size());
    std::byte* block = header.data() + header.size() - shards::kTarBlockBytes;
    block[156] = std::byte(type);
    std::memcpy(block + 157, link.data(), link.size());
    std::memset(block + 148, ' ', 8);
    unsigned sum = 0;
    for (size_t i = 0; i < shards::kTarBlockBytes; ++i) sum += std::to_integer<unsigned>(block[i]);
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    std::memcpy(block + 148, digits, 7);
    archive.append(reinterpret_cast<const char*>(header.data()), header.size());
    archive += content;
    archive.resize(shards::padded_to_block(archive.size()), '\0');
  }
  Code unpack_raw(const std::string& archive) {
    write("raw.tar", archive + std::string(1024, '\0'));
    fs::remove_all(root_ / "raw");
    const Status done = unpack_tar(root_ / "raw.tar", root_ / "raw");
    return done ? Code::kInternal : done.error().code;
  }

  fs::path root_;
};

TEST_F(TarTree, GnuTarReadsWhatIsPackedAndTheReverse) {
  write("in/a.txt", "alpha");
  write("in/sub/big", std::string(3 << 20, 'b') + "end");
  write("in/" + std::string(120, 'n') + "/x", "long");
  fs::create_directories(root_ / "in/empty");
  fs::create_symlink("a.txt", root_ / "in/link");
  ::chmod((root_ / "in/a.txt").c_str(), 0755);
  pack({root_ / "in"}, "ours.tar.gz", true);
  fs::create_directories(root_ / "gnu");
  const auto gnu = [&](std::vector<std::string> argv) {
    auto child = Subprocess::spawn({.argv = std::move(argv), .env = environment()});
    return child && child->wait(std::chrono::minutes(1))->ok();
  };
  ASSERT_TRUE(gnu({"tar", "xzf", root_ / "ours.tar.gz", "-C", root_ / "gnu"}));
  EXPECT_TRUE(gnu({"diff", "-r", root_ / "in", root_ / "gnu"}));
  EXPECT_TRUE(fs::is_symlink(root_ / "gnu/link"));
  EXPECT_TRUE(fs::is_directory(root_ / "gnu/empty"));
  EXPECT_EQ(::access((root_ / "gnu/a.txt").c_str(), X_OK), 0);

  ASSERT_TRUE(gnu({"tar", "czf", root_ / "gnu.tar.gz", "-C", root_ / "in", "."}));
  const Status unpacked = unpack_tar(root_ / "gnu.tar.gz", root_ / "out");
  ASSERT_TRUE(unpacked) << unpacked.error().message;
  EXPECT_TRUE(gnu({"diff", "-r", root_ / "in", root_ / "out"}));
  EXPECT_EQ(::access((root_ / "out/a.txt").c_str(), X_OK), 0);
}

TEST_F(TarTree, OfANameInTwoFoldersTheFirstIsPacked) {
  write("one/x", "first");
  write("two/x", "second");
  write("two/y", "more");
  pack({root_ / "one", root_ / "two", root_ / "none"}, "t.tar", false);
  ASSERT_TRUE(unpack_tar(root_ / "t.tar", root_ / "out"));
  EXPECT_EQ(text("out/x"), "first");
  EXPECT_EQ(text("out/y"), "more");
  EXPECT_FALSE(has_files({root_ / "none"}));
  EXPECT_TRUE(has_files({root_ / "none", root_ / "one"}));
}

TEST_F(TarTree, MembersThatLeaveTheFolderAreRefused) {
  for (const char* name : {"../x", "/etc/x", "a/../../x", "a/.."}) {
    std::string archive;
    add_raw(archive, name, '0', "", "content");
    EXPECT_EQ(unpack_raw(archive), Code::kInvalidArgument) << name;
  }
  EXPECT_FALSE(fs::exists(root_ / "x"));
}

TEST_F(TarTree, LinksOutOfTheFolderAreRefused) {
  for (const char* target : {"/etc/passwd", "..", "../x", "a/../../x"}) {
    for (const char type : {'1', '2'}) {
      std::string archive;
      add_raw(archive, "link", type, target);
      EXPECT_EQ(unpack_raw(archive), Code::kInvalidArgument) << type << target;
    }
  }
  // Each of these stays inside by its own name, and together they lead out.
  std::string archive;
  add_raw(archive, "s", '2', ".");
  add_raw(archive, "s/s/s/l", '2', "../../..");
  EXPECT_EQ(unpack_raw(archive), Code::kInvalidArgument);
  archive.clear();
  add_raw(archive, "d/inner", '0', "", "x");
  add_raw(archive, "d/link", '2', "inner");
  add_raw(archive, "d/link", '0', "", "through?");
  EXPECT_EQ(unpack_raw(archive), Code::kInternal);
  EXPECT_EQ(text("raw/d/inner"), "x") << "a member was written through a link";
  EXPECT_EQ(text("raw/d/link"), "through?");
}

TEST_F(TarTree, DevicesDamageAndTooMuchAreErrors) {
  std::string archive;
  add_raw(archive, "null", '3', "");
  EXPECT_EQ(unpack_raw(archive), Code::kInvalidArgument);
  archive.clear();
  add_raw(archive, "file", '0', "", std::string(5000, 'x'));
  EXPECT_EQ(unpack_raw(archive), Code::kInternal);
  write("cut.tar", archive.substr(0, 2000));
  const Status cut = unpack_tar(root_ / "cut.tar", root_ / "cut");
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, Code::kCorrupt);
  write("noise.tar", std::string(4096, 'n'));
  EXPECT_EQ(unpack_tar(root_ / "noise.tar", root_ / "cut").error().code, Code::kCorrupt);
  const Status large =
      unpack_tar(root_ / "raw.tar", root_ / "cut", {.size_bytes_max = 4999, .member_count_max = 9});
  EXPECT_EQ(large.error().code, Code::kExhausted);
}

TEST_F(TarTree, ACutGzipIsCorrupt) {
  write("in/a", std::string(200'000, 'a') + "b");
  pack({root_ / "in"}, "t.tar.gz", true);
  const std::string whole = text("t.tar.gz");
  write("cut.tar.gz", whole.substr(0, whole.size() / 2));
  EXPECT_EQ(unpack_tar(root_ / "cut.tar.gz", root_ / "out").error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace yard::channels
