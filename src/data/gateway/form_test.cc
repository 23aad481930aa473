#include "gateway/form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace yard::gateway {
namespace {

// A body that comes in pieces of so many bytes.
FormReader reader_of(const std::string& body, size_t piece_bytes, std::string_view boundary = "B") {
  auto at = std::make_shared<size_t>(0);
  return {boundary, [body, at, piece_bytes](std::span<std::byte> into) -> S3Result<size_t> {
            const size_t count = std::min({into.size(), piece_bytes, body.size() - *at});
            std::memcpy(into.data(), body.data() + *at, count);
            *at += count;
            return count;
          }};
}

const std::string kBody =
    "preamble\r\n--B\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nuser/${filename}\r\n"
    "--B  \r\nx: y\r\ncontent-disposition: Form-Data; NAME=empty\r\n\r\n\r\n"
    "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"C:\\a\\\"b.txt\"\r\n"
    "Content-Type: text/plain\r\n\r\n"
    "one\r\n--\r\n--A\r\n\r\n-two\r\n--B--\r\nepilogue";

TEST(FormReaderTest, FieldsAreReadHoweverTheBodyComesInPieces) {
  for (const size_t piece_bytes : {1u, 2u, 3u, 7u, 100'000u}) {
    FormReader form = reader_of(kBody, piece_bytes);
    auto field = form.next();
    ASSERT_TRUE(field && *field) << piece_bytes;
    EXPECT_EQ((*field)->name, "key");
    EXPECT_EQ(*form.read_text(100), "user/${filename}");
    EXPECT_EQ((*form.next())->name, "empty");
    EXPECT_EQ(*form.read_text(100), "");
    field = form.next();
    EXPECT_EQ((*field)->name, "file");
    EXPECT_EQ((*field)->filename, "C:\\a\"b.txt");
    EXPECT_EQ(*form.read_text(100), "one\r\n--\r\n--A\r\n\r\n-two");
    const auto end = form.next();
    ASSERT_TRUE(end);
    EXPECT_FALSE(*end);
  }
}

std::string error_of_reading(const std::string& body) {
  FormReader form = reader_of(body, 5);
  for (;;) {
    const auto field = form.next();
    if (!field) return field.error().code;
    if (!*field) return "none";
    const auto text = form.read_text(1000);
    if (!text) return text.error().code;
  }
}

TEST(FormReaderTest, ABodyCutAnywhereIsIncomplete) {
  ASSERT_EQ(error_of_reading(kBody), "none");
  const size_t end = kBody.find("--B--") + 5;
  for (size_t size = 0; size < end; ++size)
    EXPECT_EQ(error_of_reading(kBody.substr(0, size)), "IncompleteBody") << size;
}

TEST(FormReaderTest, WhatIsNoFormIsRefused) {
  const auto with = [](const std::string& head) {
    return error_of_reading("--B\r\n" + head + "\r\n\r\nx\r\n--B--");
  };
  EXPECT_EQ(with("Content-Disposition: form-data; name=a"), "none");
  for (const char* head :
       {"Content-Disposition: attachment; name=a", "Content-Disposition: form-data",
        "Content-Disposition: form-data; name=\"a", "Content-Disposition: form-data; name=a; junk",
        "no colon", "x: y", ""})
    EXPECT_EQ(with(head), "MalformedPOSTRequest") << head;
  std::string many;
  for (int i = 0; i < 20; ++i) many += "x: y\r\n";
  EXPECT_EQ(with(many + "Content-Disposition: form-data; name=a"), "MalformedPOSTRequest");
  EXPECT_EQ(with(std::string(100'000, 'x')), "MalformedPOSTRequest");
  EXPECT_EQ(error_of_reading("--B\r\nContent-Disposition: form-data; name=a\r\n\r\n" +
                             std::string(2000, 'x') + "\r\n--B--"),
            "MaxPostPreDataLengthExceededError");
}

TEST(FormReaderTest, TheBoundaryStandsInTheType) {
  EXPECT_EQ(form_boundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(form_boundary("Multipart/Form-Data;charset=x; Boundary=\"a b\""), "a b");
  EXPECT_FALSE(form_boundary("multipart/form-data"));
  EXPECT_FALSE(form_boundary("multipart/form-data; boundary="));
  EXPECT_FALSE(form_boundary("multipart/form-data; boundary=" + std::string(71, 'x')));
  EXPECT_FALSE(form_boundary("multipart/mixed; boundary=abc"));
  EXPECT_FALSE(form_boundary(""));
}

}  // namespace
}  // namespace yard::gateway
