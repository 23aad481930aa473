#include "shards/tar_scanner.h"

#include <gtest/gtest.h>

#include "shards/testing/compress.h"
#include "shards/testing/tar_bytes.h"
#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::shards {
namespace {

using testing::fix_checksum;
using testing::padded;
using testing::tar_end;
using testing::tar_header;
using testing::tar_member;

// "name=content name=content", or "error: ...".
struct Scanned {
  std::string text;
  Code code = Code::kInternal;
};

Scanned scan(storage::ObjectStore& store) {
  auto scanner = TarScanner::open(store, "s.tar");
  if (!scanner) return {"error: " + scanner.error().message, scanner.error().code};
  std::string text;
  while (true) {
    auto member = scanner->next();
    if (!member) return {"error: " + member.error().message, member.error().code};
    if (!*member) return {text};
    std::string content;
    auto read = scanner->read_content([&](std::span<const std::byte> piece) -> Status {
      content.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      return Ok{};
    });
    if (!read) return {"error: " + read.error().message, read.error().code};
    text += (text.empty() ? "" : " ") + (*member)->name + "=" + content;
  }
}

Scanned scan(const std::string& tar) {
  storage::MemoryStore store;
  EXPECT_TRUE(storage::put_text(store, "s.tar", tar));
  return scan(store);
}

void expect_error(const Scanned& scanned, Code code, const std::vector<std::string>& words) {
  EXPECT_TRUE(scanned.text.starts_with("error: ")) << scanned.text;
  EXPECT_EQ(scanned.code, code) << scanned.text;
  EXPECT_NE(scanned.text.find("s.tar"), std::string::npos) << scanned.text;
  for (const std::string& word : words)
    EXPECT_NE(scanned.text.find(word), std::string::npos) << scanned.text;
}

std::string pax(std::string_view key, std::string_view value) {
  for (size_t length = 0;; ++length) {
    const std::string record =
        std::to_string(length) + " " + std::string(key) + "=" + std::string(value) + "\n";
    if (record.size() == length) return record;
  }
}

TEST(TarScannerTest, MembersComeInOrderAndOthersArePassedOver) {
  const std::string tar = tar_member("dir/", "", '5') + tar_member("a.txt", "one") +
                          tar_member("link.txt", "", '2') + tar_member("hard.txt", "", '1') +
                          tar_member("old.txt", "two", '\0') + tar_member("oldfolder/", "", '\0') +
                          tar_member("cont.txt", "", '7') + tar_member("odd", "skipped", 'Z') +
                          tar_member("b.txt", std::string(1500, 'b')) + tar_end();
  EXPECT_EQ(scan(tar).text, "a.txt=one old.txt=two cont.txt= b.txt=" + std::string(1500, 'b'));
}

TEST(TarScannerTest, LongNamesOfGnuAndPaxAreRead) {
  const std::string name = std::string(150, 'x') + "/" + std::string(150, 'y') + ".txt";
  const std::string gnu = tar_member("././@LongLink", name + '\0', 'L') + tar_member("cut", "gnu");
  const std::string link = tar_member("././@LongLink", name + '\0', 'K');
  const std::string by_pax =
      tar_member("PaxHeaders/x", pax("mtime", "1.5") + pax("path", "ü.txt") + pax("size", "3"),
                 'x') +
      tar_header("cut", 0) + padded("pax");
  const std::string global = tar_member("pax_global_header", pax("comment", "a commit"), 'g');
  EXPECT_EQ(scan(gnu + link + global + by_pax + tar_member("plain.txt", "p") + tar_end()).text,
            name + "=gnu ü.txt=pax plain.txt=p");
}

TEST(TarScannerTest, UstarsPrefixBelongsToTheNameButNotInGnusFormat) {
  std::string ustar = tar_member("b.txt", "u");
  ustar.replace(345, 3, "a/a");
  fix_checksum(ustar);
  std::string gnu = ustar;
  gnu.replace(257, 8, "ustar  \0", 8);
  fix_checksum(gnu);
  EXPECT_EQ(scan(ustar + gnu + tar_end()).text, "a/a/b.txt=u b.txt=u");
}

TEST(TarScannerTest, SizesInBase256AndSumsOfSignedBytesAreRead) {
  std::string large = tar_member("a.txt", "abc");
  large.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\x03", 12));
  fix_checksum(large);
  std::string with_sign = tar_member("\xc3\xa9.txt", "x");
  int sum = 0;
  for (size_t i = 0; i < 512; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<signed char>(with_sign[i]);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", unsigned(sum));
  with_sign.replace(148, 7, digits, 7);
  EXPECT_EQ(scan(large + with_sign + tar_end()).text, "a.txt=abc é.txt=x");
}

TEST(TarScannerTest, WhatIsNoTarIsSaidToBeNone) {
  expect_error(scan(""), Code::kInvalidArgument, {"not a tar archive"});
  expect_error(scan("short"), Code::kInvalidArgument, {"not a tar archive"});
  expect_error(scan(std::string(5000, 'x')), Code::kInvalidArgument, {"not a tar archive"});
  expect_error(scan("\xfd"
                    "7zXZ" +
                    std::string(5000, 'x')),
               Code::kInvalidArgument, {"xz", "unpack"});
}

TEST(TarScannerTest, ATarCutAnywhereIsCorruptAndNamesTheMember) {
  const std::string whole =
      tar_member("a.txt", "one") + tar_member("b.txt", std::string(1500, 'b')) + tar_end();
  ASSERT_EQ(whole.size(), 1024U + 512 + 1536 + 1024);
  for (size_t size = 513; size < 3072; ++size) {
    const Scanned scanned = scan(whole.substr(0, size));
    // Cut in the padding of a member, the next header is missing.
    expect_error(scanned, Code::kCorrupt, {"truncated", "offset"});
    if (size >= 1536 && size < 1536 + 1500) expect_error(scanned, Code::kCorrupt, {"'b.txt'"});
  }
  EXPECT_EQ(scan(whole.substr(0, 3072 + 512)).code, Code::kInternal)
      << "one block of zeros ends it";
}

TEST(TarScannerTest, ADamagedHeaderIsCorruptAtItsOffset) {
  const std::string whole = tar_member("a.txt", "one") + tar_member("b.txt", "two") + tar_end();
  for (const size_t at : {0U, 100U, 130U, 150U, 156U, 257U}) {
    std::string first = whole, second = whole;
    first[at] ^= 1;
    second[1024 + at] ^= 1;
    const Scanned broken = scan(first);
    EXPECT_TRUE(broken.text.starts_with("error: ")) << at;
    if (at != 257) expect_error(broken, Code::kCorrupt, {"offset 0"});
    expect_error(scan(second), Code::kCorrupt, {"offset 1024"});
  }
}

TEST(TarScannerTest, NamesThatLeadOutAreCorrupt) {
  for (const char* name : {"/etc/passwd", "../x.txt", "a/../../x.txt", "a/.."})
    expect_error(scan(tar_member("ok.txt", "1") + tar_member(name, "x") + tar_end()),
                 Code::kCorrupt, {"offset 1024", name});
  expect_error(scan(tar_member("", "x") + tar_end()), Code::kCorrupt, {"no name"});
  EXPECT_EQ(scan(tar_member("./a..b/...c.txt", "x") + tar_end()).text, "./a..b/...c.txt=x");
}

TEST(TarScannerTest, KindsWhoseBytesLieElsewhereAreRefusedByName) {
  expect_error(scan(tar_member("hole.bin", "x", 'S') + tar_end()), Code::kInvalidArgument,
               {"hole.bin", "sparse"});
  expect_error(
      scan(tar_member("x", pax("GNU.sparse.major", "1"), 'x') + tar_member("a", "x") + tar_end()),
      Code::kInvalidArgument, {"sparse", "'a'", "offset 1024"});
  expect_error(scan(tar_member("rest.bin", "x", 'M') + tar_end()), Code::kInvalidArgument,
               {"rest.bin", "multi-volume"});
  expect_error(scan(tar_member("g", pax("size", "3"), 'g') + tar_end()), Code::kInvalidArgument,
               {"global"});
}

TEST(TarScannerTest, BytesAfterTheEndAreCorrupt) {
  const std::string whole = tar_member("a.txt", "one") + tar_end();
  EXPECT_EQ(scan(whole + std::string(9000, '\0')).text, "a.txt=one");
  expect_error(scan(whole + whole), Code::kCorrupt, {"end of the archive", "cat"});
}

TEST(TarScannerTest, ImpossibleSizesAndRecordsAreCorrupt) {
  expect_error(scan(tar_header("a.txt", 1000000) + tar_end()), Code::kCorrupt, {"'a.txt'"});
  std::string huge = tar_member("a.txt", "abc");
  huge.replace(124, 12, "\x80" + std::string(3, '\0') + std::string(8, '\xff'));
  fix_checksum(huge);
  expect_error(scan(huge + tar_end()), Code::kCorrupt, {"'a.txt'"});
  huge.replace(124, 12, "\x80" + std::string(11, '\xff'));
  fix_checksum(huge);
  expect_error(scan(huge + tar_end()), Code::kCorrupt, {"size"});
  for (const char* records : {"x", "4 a\n", "99 path=a\n", "11 path=abc", "0 path=a\n", "-3 a=b\n",
                              "18446744073709551615 a=b\n", "3 \n"})
    expect_error(scan(tar_member("p", records, 'x') + tar_member("a", "x") + tar_end()),
                 Code::kCorrupt, {"pax"});
  expect_error(scan(tar_member("p", pax("size", "-1"), 'x') + tar_member("a", "x") + tar_end()),
               Code::kCorrupt, {"size"});
  expect_error(scan(tar_header("p", 9'000'000, 'x') + tar_end()), Code::kCorrupt, {"extended"});
}

TEST(TarScannerTest, MembersLargerThanTheWindowComeWhole) {
  std::string content(3'500'000, 'x');
  for (size_t i = 0; i < content.size(); ++i) content[i] = char(i * 7919 >> 8);
  EXPECT_EQ(scan(tar_member("a.bin", content) + tar_member("b.bin", content) + tar_end()).text,
            "a.bin=" + content + " b.bin=" + content);
}

TEST(TarScannerTest, AStoreThatFailsIsNoCorruption) {
  storage::MemoryStore inner;
  ASSERT_TRUE(storage::put_text(inner, "s.tar", tar_member("a.txt", "one") + tar_end()));
  storage::testing::FaultyStore store(inner, [](const storage::testing::Call& call) -> Status {
    if (call.number == 1) return Error{Code::kUnavailable, "s.tar: 503"};
    return Ok{};
  });
  expect_error(scan(store), Code::kUnavailable, {"503"});
}

TEST(TarHeaderTest, NamesAreWrittenInTheSmallestFormThatHoldsThem) {
  const auto size_of = [](const std::string& name) { return tar_member_header(name, 1).size(); };
  EXPECT_EQ(size_of("a.txt"), 512U);
  EXPECT_EQ(size_of(std::string(100, 'a')), 512U);
  EXPECT_EQ(size_of(std::string(101, 'a')), 1536U);
  EXPECT_EQ(size_of(std::string(155, 'a') + "/" + std::string(100, 'b')), 512U);
  EXPECT_EQ(size_of(std::string(156, 'a') + "/" + std::string(100, 'b')), 1536U);
  EXPECT_EQ(size_of("ü"), 1536U);
}

TEST(TarHeaderTest, SizesOverEightGibibytesGoThroughPax) {
  const auto bytes = tar_member_header("a.bin", uint64_t{1} << 33);
  ASSERT_EQ(bytes.size(), 1536U);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_NE(text.find("19 size=8589934592\n"), std::string::npos);
}

// The length of a record counts itself: 10 and 100 are where it grows by a digit.
TEST(TarHeaderTest, PaxLengthsCountTheirOwnDigits) {
  for (size_t length = 1; length < 1200; ++length) {
    const std::string name = std::string(length, 'a') + "ü.txt";
    const auto bytes = tar_member_header(name, 0);
    storage::MemoryStore store;
    std::string tar(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    ASSERT_EQ(scan(tar + tar_end()).text, name + "=");
  }
}

// What the scanner finds when it may leave out what is damaged.
struct Skipped {
  std::string names;
  std::vector<TarDamage> damages;
  bool ended = false;
};

Skipped scan_skipping(const std::string& tar) {
  storage::MemoryStore store;
  EXPECT_TRUE(storage::put_text(store, "s.tar", tar));
  Skipped skipped;
  auto scanner = TarScanner::open(store, "s.tar");
  if (!scanner) return skipped;
  for (int i = 0; i < 1000; ++i) {
    auto member = scanner->next();
    const bool is_end = member && !*member;
    if (is_end) {
      skipped.ended = true;
      return skipped;
    }
    std::string content;
    const Status read = member ? scanner->read_content([&](std::span<const std::byte> piece) {
      content.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      return Status(Ok{});
    })
                               : Status(member.error());
    if (read) {
      skipped.names += (*member)->name + "=" + content + " ";
      continue;
    }
    auto damage = scanner->skip_damage();
    if (!damage || !*damage) return skipped;
    skipped.damages.push_back(**damage);
  }
  return skipped;
}

TEST(TarScannerTest, CompressedArchivesReadAsPlainOnesDo) {
  std::string large(3 << 20, 'x');
  for (size_t i = 0; i < large.size(); ++i) large[i] = char(i * 2654435761U >> 24);
  const std::string tar = tar_member("a.txt", "one") + tar_member("big.bin", large) +
                          tar_member("e.txt", "") + tar_member("z.txt", "last") + tar_end();
  const std::string expected = "a.txt=one big.bin=" + large + " e.txt= z.txt=last";
  EXPECT_EQ(scan(tar).text, expected);
  EXPECT_EQ(scan(testing::gzipped(tar)).text, expected);
  EXPECT_EQ(scan(testing::zstd_compressed(tar)).text, expected);
  // Several gzip members or zstd frames one after the other are one stream.
  const size_t half = tar.size() / 2;
  EXPECT_EQ(scan(testing::gzipped(tar.substr(0, half)) + testing::gzipped(tar.substr(half))).text,
            expected);
  EXPECT_EQ(scan(testing::zstd_compressed(tar.substr(0, half)) +
                 testing::zstd_compressed(tar.substr(half)))
                .text,
            expected);
}

TEST(TarScannerTest, ADamagedOrCutCompressedArchiveIsCorruptAndNeverReadAsWhole) {
  const std::string tar = tar_member("a.txt", "one") + tar_member("b.txt", "two") + tar_end();
  for (const std::string& packed : {testing::gzipped(tar), testing::zstd_compressed(tar)}) {
    for (size_t size = 20; size < packed.size(); ++size)
      EXPECT_EQ(scan(packed.substr(0, size)).code, Code::kCorrupt) << size;
    EXPECT_EQ(scan(packed + "behind").code, Code::kCorrupt);
  }
  const std::string gzipped = testing::gzipped(tar);
  for (size_t at = 20; at < gzipped.size(); ++at) {
    std::string bad = gzipped;
    bad[at] = char(bad[at] ^ 0x10);
    // Some bits may be either: a run of zeros can be copied from here or from there.
    const Scanned scanned = scan(bad);
    EXPECT_TRUE(scanned.code == Code::kCorrupt || scanned.text == scan(tar).text) << at;
  }
  EXPECT_EQ(scan(testing::gzipped(std::string(5000, 'x'))).code, Code::kInvalidArgument);
}

TEST(TarScannerTest, BehindDamageItGoesOnAtTheNextSoundHeader) {
  const std::string a = tar_member("a.txt", "one"), b = tar_member("b.txt", "two"),
                    c = tar_member("c.txt", "three");
  std::string broken = b;
  broken[0] = 'X';
  auto skipped = scan_skipping(a + broken + c + tar_end());
  EXPECT_EQ(skipped.names, "a.txt=one c.txt=three ");
  ASSERT_EQ(skipped.damages.size(), 1U);
  EXPECT_EQ(skipped.damages[0].member, "");
  EXPECT_EQ(skipped.damages[0].offset, 1024U);
  EXPECT_EQ(skipped.damages[0].size_bytes, 1024U);
  EXPECT_TRUE(skipped.ended);

  skipped = scan_skipping(a + tar_member("../b.txt", "two") + tar_member("s.txt", "x", 'S') + c +
                          tar_end());
  EXPECT_EQ(skipped.names, "a.txt=one c.txt=three ");
  ASSERT_EQ(skipped.damages.size(), 2U);
  EXPECT_EQ(skipped.damages[0].member, "../b.txt");
  EXPECT_EQ(skipped.damages[1].member, "s.txt");

  skipped = scan_skipping((a + b).substr(0, 1024 + 512 + 2));
  EXPECT_EQ(skipped.names, "a.txt=one ");
  ASSERT_EQ(skipped.damages.size(), 1U);
  EXPECT_EQ(skipped.damages[0].member, "b.txt");
  EXPECT_TRUE(skipped.ended);

  skipped = scan_skipping(a + tar_end() + b + tar_end());
  EXPECT_EQ(skipped.names, "a.txt=one ");
  ASSERT_EQ(skipped.damages.size(), 1U);
  EXPECT_TRUE(skipped.damages[0].is_behind_end);
}

TEST(TarScannerTest, ACutCompressedArchiveGivesTheMembersBeforeTheCut) {
  std::string noise(300'000, '\0');
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = char(i * i * 2654435761U >> 21);
  const std::string packed =
      testing::gzipped(tar_member("a.txt", "one") + tar_member("b.bin", noise) + tar_end());
  const auto skipped = scan_skipping(packed.substr(0, packed.size() / 2));
  EXPECT_EQ(skipped.names, "a.txt=one ");
  EXPECT_EQ(skipped.damages.size(), 1U);
  EXPECT_TRUE(skipped.ended);
}

TEST(TarScannerTest, AStoreThatFailsIsNotSkipped) {
  storage::MemoryStore store;
  ASSERT_TRUE(storage::put_text(store, "s.tar", tar_member("a.txt", "one") + tar_end()));
  auto scanner = TarScanner::open(store, "s.tar");
  ASSERT_TRUE(scanner->next());
  // The window holds it all; a fresh one reads again.
  ASSERT_TRUE(storage::put_text(store, "t.tar",
                                tar_member("a.bin", std::string(3 << 20, 'x')) + tar_end()));
  auto changing = TarScanner::open(store, "t.tar");
  ASSERT_TRUE(changing->next());
  ASSERT_TRUE(storage::put_text(store, "t.tar", "another"));
  EXPECT_FALSE(changing->read_content([](auto) { return Status(Ok{}); }));
  auto damage = changing->skip_damage();
  ASSERT_TRUE(damage);
  EXPECT_FALSE(*damage);
}

}  // namespace
}  // namespace yard::shards
