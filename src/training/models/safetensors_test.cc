#include "models/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "storage/memory_store.h"

namespace yard::models {
namespace {

class SafetensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "/safetensors-" + info->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/x.safetensors"; }
  void write(std::string_view bytes) const {
    std::ofstream(path(), std::ios::binary).write(bytes.data(), std::ssize(bytes));
  }
  // A file with this header and so many bytes of data.
  void write_file(std::string_view header, size_t data_bytes) const {
    const uint64_t size = header.size();
    std::string bytes(reinterpret_cast<const char*>(&size), 8);
    bytes += header;
    bytes.resize(bytes.size() + data_bytes, '\1');
    write(bytes);
  }
  // The error that reading gives; its message must name the file.
  Error read_error() const {
    auto file = read_safetensors(path());
    if (file) {
      ADD_FAILURE() << "was read";
      return {Code::kInternal, ""};
    }
    EXPECT_NE(file.error().message.find(path()), std::string::npos) << file.error().message;
    return file.error();
  }

  std::string folder_;
};

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(SafetensorsTest, WhatIsWrittenIsRead) {
  const std::vector<NamedTensor> tensors = {
      {"b", at::arange(6, at::kFloat).view({2, 3})},
      {"a", at::arange(3, at::kFloat).to(at::kBFloat16)},
      {"ids", at::arange(4, at::kLong)},
      {"flag", at::ones({3}, at::kBool)},
      {"scalar", at::ones({}, at::kHalf)},
      {"empty", at::ones({0, 4}, at::kInt)},
      {"u16", at::arange(3).to(at::kUInt16)},
      {"f8", at::arange(3).to(at::kFloat8_e4m3fn)},
      {"c64", at::ones({2}, at::kComplexFloat)},
  };
  ASSERT_TRUE(write_safetensors(path(), tensors, {{"step", "12"}}));
  const auto file = read_safetensors(path());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"step", "12"}}));
  ASSERT_EQ(file->tensors.size(), tensors.size());
  for (const NamedTensor& t : tensors) {
    const auto found = std::ranges::find(file->tensors, t.name, &NamedTensor::name);
    ASSERT_NE(found, file->tensors.end()) << t.name;
    EXPECT_EQ(found->tensor.scalar_type(), t.tensor.scalar_type());
    EXPECT_TRUE(found->tensor.to(at::kComplexFloat).equal(t.tensor.to(at::kComplexFloat)))
        << t.name;
  }
}

TEST_F(SafetensorsTest, AFileOfMetadataAloneIsRead) {
  write_file(R"({"__metadata__":{"step":"12"}})", 0);
  const auto file = read_safetensors(path());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->tensors.empty());
  EXPECT_EQ(file->metadata.at("step"), "12");
  write_file("{}", 0);
  EXPECT_TRUE(read_safetensors(path()));
}

TEST_F(SafetensorsTest, TensorsAreTheFilesPagesAndNoCopies) {
  ASSERT_TRUE(write_safetensors(path(), {{"a", at::ones({4})}, {"b", at::ones({2})}}));
  const auto file = read_safetensors(path());
  ASSERT_TRUE(file);
  const auto* a = static_cast<const char*>(file->tensors[0].tensor.const_data_ptr());
  const auto* b = static_cast<const char*>(file->tensors[1].tensor.const_data_ptr());
  EXPECT_EQ(b - a, 16) << "one beside the other, as in the file";
}

TEST_F(SafetensorsTest, EqualTensorsGiveEqualBytesInWhateverOrder) {
  const NamedTensor a{"a", at::ones({2})}, b{"b", at::ones({3}, at::kLong)};
  const auto one = safetensors_bytes({a, b}), other = safetensors_bytes({b, a});
  ASSERT_TRUE(one && other);
  EXPECT_EQ(*one, *other);
  EXPECT_TRUE(has(*one, R"("b":{"data_offsets":[0,24])")) << "wider elements first";
}

TEST_F(SafetensorsTest, AViewThatIsNotContiguousIsWrittenAsItReads) {
  const at::Tensor t = at::arange(6, at::kFloat).view({2, 3}).t();
  ASSERT_TRUE(write_safetensors(path(), {{"t", t}}));
  const auto file = read_safetensors(path());
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->tensors[0].tensor.equal(t));
}

TEST_F(SafetensorsTest, UploadGetsTheSameBytes) {
  storage::MemoryStore store;
  const std::vector<NamedTensor> tensors = {{"a", at::arange(5, at::kFloat)}};
  auto upload = store.upload("m.safetensors");
  ASSERT_TRUE(upload);
  ASSERT_TRUE(write_safetensors(**upload, tensors));
  ASSERT_TRUE((*upload)->commit());
  const auto bytes = storage::get_all(store, "m.safetensors");
  ASSERT_TRUE(bytes);
  EXPECT_EQ(*bytes, *safetensors_bytes(tensors));
}

TEST_F(SafetensorsTest, TensorsOutliveTheFileAndChangeOnlyInMemory) {
  ASSERT_TRUE(write_safetensors(path(), {{"a", at::ones({4})}}));
  const auto before = read_file(path());
  at::Tensor a;
  {
    const auto file = read_safetensors(path());
    ASSERT_TRUE(file);
    a = file->tensors[0].tensor;
  }
  a.fill_(5);
  EXPECT_EQ(*read_file(path()), *before);
  std::filesystem::remove(path());
  EXPECT_EQ(a.sum().item<float>(), 20);
}

TEST_F(SafetensorsTest, UnalignedDataAreRead) {
  // Without the reference's padding: the floats start 3 past a multiple of 8.
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string padded = header + std::string((8 + 3 - header.size() % 8) % 8, ' ');
  write_file(padded, 8);
  const auto file = read_safetensors(path());
  ASSERT_TRUE(file) << file.error().message;
  float expected = 0;
  std::memcpy(&expected, "\1\1\1\1", 4);
  EXPECT_EQ(file->tensors[0].tensor[1].item<float>(), expected);
}

TEST_F(SafetensorsTest, MalformedFilesAreCorruptAndSayWhy) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  struct Case {
    std::string header;
    size_t data_bytes;
    std::string why;
  };
  const std::vector<Case> cases = {
      {"{" + a + "}", 7, "'a': its data lie outside the file"},
      {"{" + a + "}", 9, "data behind the last tensor"},
      {"{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8, "'b': overlaps"},
      {"{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[9,13]}})", 13,
       "'b': leaves a hole"},
      {"{" + a + "," + a + "}", 8, "twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, "twice"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "does not fit its shape"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "does not fit its shape"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}})",
       0, "does not fit its shape"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0,
       "does not fit its shape"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "outside the file"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", 8, "two entries"},
      {"{" + a + "}" + std::string(3, '\0'), 8, "not JSON"},
      {"{" + a, 8, "not JSON"},
      {R"(["a"])", 0, "not a safetensors file"},
      {"", 0, "not a safetensors file"},
      {"\x80\x02}q", 0, "not a safetensors file"},
      {R"({"__metadata__":{"step":3}})", 0, "'__metadata__'"},
      {R"({"__metadata__":[]})", 0, "'__metadata__'"},
  };
  for (const Case& c : cases) {
    write_file(c.header, c.data_bytes);
    const Error error = read_error();
    EXPECT_EQ(error.code, Code::kCorrupt) << c.header << ": " << error.message;
    EXPECT_TRUE(has(error.message, c.why)) << c.header << ": " << error.message;
  }
}

TEST_F(SafetensorsTest, FieldsOfAWrongKindAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", "shape"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", "shape"},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "dtype"},
      {R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,4]}})", "F4"},
      {R"({"a":7})", "not an object"},
  };
  for (const auto& [header, part] : cases) {
    write_file(header, 4);
    const Error error = read_error();
    EXPECT_EQ(error.code, part == "F4" ? Code::kInvalidArgument : Code::kCorrupt);
    EXPECT_TRUE(has(error.message, part) && has(error.message, "'a'")) << error.message;
  }
}

TEST_F(SafetensorsTest, HeaderLongerThanTheFileOrTheLimitIsCorrupt) {
  for (const uint64_t size : {uint64_t{3}, kSafetensorsHeaderBytesMax,
                              kSafetensorsHeaderBytesMax + 1, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string bytes(reinterpret_cast<const char*>(&size), 8);
    write(bytes + "{}");
    EXPECT_EQ(read_error().code, Code::kCorrupt) << size;
  }
  write("1234567");
  EXPECT_EQ(read_error().code, Code::kCorrupt);
  write("");
  EXPECT_EQ(read_error().code, Code::kCorrupt);
}

TEST_F(SafetensorsTest, EveryCutIsAnError) {
  const auto whole = safetensors_bytes({{"a", at::ones({3})}, {"b", at::ones({2}, at::kLong)}});
  ASSERT_TRUE(whole);
  for (size_t length = 0; length < whole->size(); ++length) {
    write(whole->substr(0, length));
    EXPECT_FALSE(read_safetensors(path())) << length;
  }
}

TEST_F(SafetensorsTest, MissingFilesAndFoldersAreToldApart) {
  EXPECT_EQ(read_error().code, Code::kNotFound);
  std::filesystem::create_directory(path());
  EXPECT_EQ(read_error().code, Code::kInvalidArgument);
}

TEST_F(SafetensorsTest, ADuplicateOrAnUnknownDTypeIsNotWritten) {
  const at::Tensor t = at::ones({1});
  const auto twice = write_safetensors(path(), {{"a", t}, {"a", t}});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, Code::kInvalidArgument);
  EXPECT_FALSE(write_safetensors(path(), {{"c", t.to(at::kComplexDouble)}}));
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "nothing left behind";
}

TEST_F(SafetensorsTest, AFailedWriteLeavesTheOldFile) {
  ASSERT_TRUE(write_safetensors(path(), {{"a", at::ones({2})}}));
  const auto before = read_file(path());
  EXPECT_FALSE(write_safetensors(path(), {{"a", at::ones({2}).to(at::kComplexDouble)}}));
  EXPECT_EQ(*read_file(path()), *before);
  EXPECT_EQ(write_safetensors(folder_ + "/no/x", {}).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace yard::models
