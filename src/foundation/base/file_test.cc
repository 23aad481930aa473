#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/ids.h"

namespace yard {
namespace {

class FileTest : public testing::Test {
 protected:
  FileTest() { std::filesystem::create_directories(root_); }
  ~FileTest() override { std::filesystem::remove_all(root_); }

  std::string path(const std::string& name) const { return root_ + "/" + name; }
  size_t entry_count() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(root_), {}));
  }

 private:
  const std::string root_ = testing::TempDir() + "yard-file-" + random_name(8);
};

TEST_F(FileTest, ReadsBackWhatWasWritten) {
  const std::string content("a\0b\nc", 5);
  ASSERT_TRUE(write_file_atomic(path("x"), content));
  EXPECT_EQ(*read_file(path("x")), content);
  ASSERT_TRUE(write_file_atomic(path("x"), ""));
  EXPECT_EQ(*read_file(path("x")), "");
}

TEST_F(FileTest, ReadsLargeFilesWhole) {
  std::string content(300'001, 'x');
  for (size_t i = 0; i < content.size(); i += 7) content[i] = static_cast<char>(i);
  ASSERT_TRUE(write_file_atomic(path("x"), content));
  EXPECT_EQ(*read_file(path("x"), content.size()), content);
}

TEST_F(FileTest, ReadsFilesWhoseSizeIsUnknown) {
  const auto status = read_file("/proc/self/status");
  ASSERT_TRUE(status);
  EXPECT_NE(status->find("Pid:"), std::string::npos);
}

TEST_F(FileTest, RefusesAFileOverTheLimit) {
  ASSERT_TRUE(write_file_atomic(path("x"), "12345"));
  EXPECT_TRUE(read_file(path("x"), 5));
  EXPECT_EQ(read_file(path("x"), 4).error().code, Code::kExhausted);
  EXPECT_EQ(read_file("/proc/self/status", 4).error().code, Code::kExhausted);
}

TEST_F(FileTest, ErrorsNameThePath) {
  const auto missing = read_file(path("nowhere"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_NE(missing.error().message.find(path("nowhere")), std::string::npos);
  EXPECT_EQ(read_file(path("")).error().code, Code::kInvalidArgument);  // a directory
  EXPECT_EQ(write_file_atomic(path("no/such/dir"), "x").error().code, Code::kNotFound);
}

TEST_F(FileTest, WriteReplacesAndLeavesNoTemporary) {
  ASSERT_TRUE(write_file_atomic(path("x"), "old"));
  ASSERT_TRUE(write_file_atomic(path("x"), "new"));
  EXPECT_EQ(*read_file(path("x")), "new");
  EXPECT_EQ(entry_count(), 1u);
}

TEST_F(FileTest, FailedRenameLeavesNoTemporary) {
  ASSERT_TRUE(make_directories(path("taken/inside")));
  EXPECT_FALSE(write_file_atomic(path("taken"), "x"));
  EXPECT_EQ(entry_count(), 1u);
}

// A file size limit is what a test can set of "disk full"; both are kExhausted.
TEST_F(FileTest, WriteThatDoesNotFitKeepsTheOldContent) {
  ASSERT_TRUE(write_file_atomic(path("x"), "old"));
  const auto before = ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = 1000, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written = write_file_atomic(path("x"), std::string(5000, 'n'));
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::signal(SIGXFSZ, before);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Code::kExhausted);
  EXPECT_EQ(*read_file(path("x")), "old");
  EXPECT_EQ(entry_count(), 1u);
}

TEST_F(FileTest, MakesDirectoriesOnceAndAgain) {
  EXPECT_TRUE(make_directories(path("a/b/c")));
  EXPECT_TRUE(make_directories(path("a/b/c")));
  EXPECT_TRUE(make_directories(path("a/b/c/")));
  EXPECT_TRUE(std::filesystem::is_directory(path("a/b/c")));
}

TEST_F(FileTest, AFileInTheWayOfADirectoryIsAnInvalidArgument) {
  ASSERT_TRUE(write_file_atomic(path("x"), ""));
  EXPECT_EQ(make_directories(path("x")).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make_directories(path("x/y")).error().code, Code::kInvalidArgument);
  EXPECT_EQ(make_directories("").error().code, Code::kInvalidArgument);
}

TEST_F(FileTest, UniqueFdClosesOnceAndGivesAway) {
  const auto is_open = [](int fd) { return ::fcntl(fd, F_GETFD) >= 0; };
  const int first = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int second = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  {
    UniqueFd owner(first);
    UniqueFd other(second);
    owner = std::move(other);
    EXPECT_FALSE(is_open(first));
    EXPECT_EQ(owner.release(), second);
    EXPECT_FALSE(owner.valid());
  }
  EXPECT_TRUE(is_open(second));
  UniqueFd(second).reset();
  EXPECT_FALSE(is_open(second));
}

}  // namespace
}  // namespace yard
