#include "tensor/file_tensor.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace yard::tensor {
namespace {

namespace fs = std::filesystem;

class FileTensorTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  // Bytes of this process' memory that no file is behind.
  static int64_t anonymous_bytes() {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line))
      if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
    return -1;
  }

  const std::string folder_ = testing::TempDir() + "file-tensor-" + std::to_string(::getpid());
};

TEST_F(FileTensorTest, IsMemoryOfAFileThatNobodySees) {
  constexpr int64_t kElements = int64_t{16} << 20;  // 64 MiB
  const int64_t before = anonymous_bytes();
  auto made = make_file_tensor(folder_, kElements, at::kFloat);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ((*made)[kElements - 1].item<float>(), 0);
  made->fill_(3);
  EXPECT_EQ((*made)[12345].item<float>(), 3);
  EXPECT_LT(anonymous_bytes() - before, int64_t{8} << 20);
}

TEST_F(FileTensorTest, LivesAsLongAsItsStorage) {
  at::Tensor part;
  {
    auto made = make_file_tensor(folder_, 100, at::kLong);
    ASSERT_TRUE(made);
    made->copy_(at::arange(100));
    part = made->narrow(0, 40, 2);
  }
  EXPECT_EQ(part[1].item<int64_t>(), 41);
}

TEST_F(FileTensorTest, NeedsAFolderAndRoomOnItsDisk) {
  EXPECT_EQ(make_file_tensor(folder_ + "/none", 5, at::kFloat).error().code, Code::kNotFound);
  const auto huge = make_file_tensor(folder_, int64_t{1} << 50, at::kFloat);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, Code::kExhausted) << huge.error().message;
  EXPECT_EQ(make_file_tensor(folder_, 0, at::kFloat)->numel(), 0);
}

}  // namespace
}  // namespace yard::tensor
