#include "gateway/uploads.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>

#include "base/clock.h"
#include "gateway/testing/temp_root.h"

namespace yard::gateway {
namespace {

S3Status anything(const ObjectFile*) {
  return Ok{};
}

S3Status refuse(const ObjectFile*) {
  return s3::kPreconditionFailed;
}

PartInfo part(uint32_t number, uint64_t size_bytes = kPartBytesMin) {
  return {.number = number,
          .size_bytes = size_bytes,
          .etag = std::string(32, char('0' + number % 10)),
          .digest = std::string(8, char(number))};
}

std::vector<CompletedPart> all_of(const std::vector<PartInfo>& parts) {
  std::vector<CompletedPart> wanted;
  for (const PartInfo& one : parts) wanted.push_back({one.number, one.etag, {}});
  return wanted;
}

std::string code_of(const std::vector<PartInfo>& uploaded,
                    const std::vector<CompletedPart>& wanted) {
  const auto plan = plan_assembly({}, uploaded, wanted);
  return plan ? "none" : plan.error().code;
}

TEST(PlanAssemblyTest, TenThousandPartsAreAnObjectAndOneMoreIsNot) {
  std::vector<PartInfo> parts;
  for (uint32_t i = 1; i <= kPartCountMax; ++i) parts.push_back(part(i));
  const auto plan = plan_assembly({}, parts, all_of(parts));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->size_bytes, kPartBytesMin * kPartCountMax);
  EXPECT_TRUE(plan->etag.ends_with("-10000"));
  parts.push_back(part(kPartCountMax + 1));
  EXPECT_EQ(code_of(parts, all_of(parts)), "MalformedXML");
}

TEST(PlanAssemblyTest, WrongListsAreRefusedByTheirName) {
  const std::vector<PartInfo> parts = {part(1), part(2), part(7, 1)};
  EXPECT_EQ(code_of(parts, all_of(parts)), "none");
  EXPECT_EQ(code_of(parts, {}), "MalformedXML");
  EXPECT_EQ(code_of(parts, all_of({parts[1], parts[0]})), "InvalidPartOrder");
  EXPECT_EQ(code_of(parts, all_of({parts[0], parts[0]})), "InvalidPartOrder");
  EXPECT_EQ(code_of(parts, all_of({part(3)})), "InvalidPart");
  EXPECT_EQ(code_of(parts, {{1, parts[1].etag, {}}}), "InvalidPart");
  EXPECT_EQ(code_of({part(1, 1), part(2)}, all_of({part(1), part(2)})), "EntityTooSmall");
  EXPECT_EQ(code_of({part(1, kObjectBytesMax), part(2)}, all_of({part(1), part(2)})),
            "EntityTooLarge");
  EXPECT_EQ(code_of(parts, {{1, parts[0].etag, {{ChecksumAlgorithm::kCrc64Nvme, "AAAAAAAAAAA="}}}}),
            "InvalidPart");
}

TEST(PlanAssemblyTest, AFullObjectsChecksumIsThatOfAllBytes) {
  const std::string whole =
      std::string(kPartBytesMin, 'a') + std::string(kPartBytesMin + 1, 'b') + "c";
  std::vector<PartInfo> parts;
  for (const auto& [number, offset, size] :
       {std::tuple(1u, 0ul, kPartBytesMin), std::tuple(2u, kPartBytesMin, kPartBytesMin + 1),
        std::tuple(3u, 2 * kPartBytesMin + 1, uint64_t{1})}) {
    const auto piece = bytes_of(whole).subspan(offset, size);
    Checksum crc(ChecksumAlgorithm::kCrc32c);
    crc.update(piece);
    Checksum md5(ChecksumAlgorithm::kMd5);
    md5.update(piece);
    parts.push_back(
        {.number = number, .size_bytes = size, .etag = md5.hex(), .digest = crc.digest()});
  }
  const UploadInfo upload{.algorithm = ChecksumAlgorithm::kCrc32c};
  const auto plan = plan_assembly(upload, parts, all_of(parts));
  EXPECT_EQ(plan->checksum.base64, checksum_base64(ChecksumAlgorithm::kCrc32c, bytes_of(whole)));
}

class UploadsTest : public testing::TestWithParam<MetaStore::Place> {
 protected:
  UploadsTest() : folder_(GetParam()), uploads_(folder_.root()) {}

  UploadInfo begin(const std::string& key = "k") {
    return *uploads_.begin({.bucket = "b",
                            .key = key,
                            .begun = Clock::real().wall_now(),
                            .meta = {.headers = {{"content-type", "t"}}, .user = {{"m", "1"}}},
                            .algorithm = ChecksumAlgorithm::kSha256,
                            .checksum_type = ChecksumType::kComposite,
                            .names_algorithm = true});
  }
  S3Status put(const UploadInfo& upload, uint32_t number, std::string_view content) {
    auto file = uploads_.open_part(upload, number, content.size());
    if (!file) return file.error();
    EXPECT_TRUE(file->write(bytes_of(content)));
    return finish(upload, number, *std::move(file), content);
  }
  S3Status finish(const UploadInfo& upload, uint32_t number, PartFile file,
                  std::string_view content) {
    Checksum md5(ChecksumAlgorithm::kMd5);
    Checksum wanted(upload.algorithm);
    md5.update(bytes_of(content));
    wanted.update(bytes_of(content));
    return uploads_.put_part(upload, number, std::move(file),
                             {content.size(), md5.digest(), wanted.digest()});
  }
  ino_t inode_of(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(::stat((folder_.path() / path).c_str(), &info), 0) << path;
    return info.st_ino;
  }
  std::string staged_path(const UploadInfo& upload) {
    return ".yard/uploads/" + upload.id + "/" + staged_name(kPartBytesMin);
  }
  S3Status complete_first(const UploadInfo& upload, size_t count,
                          const Precondition& precondition = anything) {
    auto parts = *uploads_.parts(upload);
    if (parts.size() > count) parts.resize(count);
    const auto plan = plan_assembly(upload, parts, all_of(parts));
    if (!plan) return plan.error();
    Bucket bucket = folder_.bucket();
    return uploads_.complete(upload, *plan, bucket, precondition, [] {});
  }
  S3Status complete(const UploadInfo& upload) {
    const auto parts = uploads_.parts(upload);
    const auto plan = plan_assembly(upload, *parts, all_of(*parts));
    if (!plan) return plan.error();
    Bucket bucket = folder_.bucket();
    return uploads_.complete(upload, *plan, bucket, anything, [] {});
  }

  TempRoot folder_;
  Uploads uploads_;
};

INSTANTIATE_TEST_SUITE_P(Places, UploadsTest,
                         testing::Values(MetaStore::Place::kAttributeOrFile,
                                         MetaStore::Place::kFileOnly));

TEST_P(UploadsTest, AnUploadIsReadAsItWasBegunAlsoAfterARestart) {
  const UploadInfo begun = begin("a key/\xC3\xBC\n");
  const Uploads again(folder_.root());
  const auto found = again.find("b", begun.key, begun.id);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->meta, begun.meta);
  EXPECT_EQ(found->algorithm, begun.algorithm);
  EXPECT_EQ(found->checksum_type, begun.checksum_type);
  EXPECT_TRUE(found->names_algorithm);
  for (const char* id : {"", "..", "../x", "ABC"}) EXPECT_FALSE(again.find("b", begun.key, id));
  EXPECT_FALSE(again.find("other", begun.key, begun.id));
  EXPECT_FALSE(again.find("b", "other", begun.id));
}

TEST_P(UploadsTest, PartsInAnyOrderBecomeTheObjectAndTheLatestOfANumberCounts) {
  const UploadInfo upload = begin();
  const std::string first(kPartBytesMin, 'a');
  ASSERT_TRUE(put(upload, 2, "end"));
  ASSERT_TRUE(put(upload, 1, "replaced"));
  ASSERT_TRUE(put(upload, 1, first));
  EXPECT_EQ(folder_.content("k"), "no such key");
  ASSERT_TRUE(complete(upload));
  EXPECT_EQ(folder_.content("k"), first + "end");
  const auto object = folder_.bucket().open("k");
  EXPECT_EQ(object->meta.user, (HeaderList{{"m", "1"}}));
  EXPECT_EQ(object->meta.part_sizes_bytes, (std::vector<uint64_t>{kPartBytesMin, 3}));
  EXPECT_TRUE(object->meta.checksum->base64.ends_with("-2"));
  EXPECT_EQ(folder_.count_in("uploads"), 0u);
  EXPECT_EQ(put(upload, 3, "late").error().code, "NoSuchUpload");
}

TEST_P(UploadsTest, TheObjectOfAnUploadIsKnownAndNoOtherIs) {
  const UploadInfo upload = begin();
  ASSERT_TRUE(put(upload, 1, std::string(kPartBytesMin, 'a')));
  ASSERT_TRUE(put(upload, 2, "end"));
  const auto parts = uploads_.parts(upload);
  const auto plan = plan_assembly(upload, *parts, all_of(*parts));
  ASSERT_TRUE(complete(upload));
  const auto object = folder_.bucket().open("k");
  ASSERT_TRUE(object);
  const auto found = find_assembly(*object, upload.id, all_of(*parts));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->etag, plan->etag);
  EXPECT_EQ(found->checksum, plan->checksum);
  EXPECT_EQ(found->size_bytes, kPartBytesMin + 3);
  EXPECT_FALSE(find_assembly(*object, begin().id, all_of(*parts)));
  EXPECT_FALSE(find_assembly(*object, "", all_of(*parts)));
  EXPECT_FALSE(find_assembly(*object, upload.id, all_of({parts->front()})));
  EXPECT_FALSE(find_assembly(*object, upload.id, {}));
  const UploadInfo same = begin();
  ASSERT_TRUE(put(same, 1, std::string(kPartBytesMin, 'a')));
  ASSERT_TRUE(put(same, 2, "end"));
  ASSERT_TRUE(complete(same));
  EXPECT_FALSE(find_assembly(*folder_.bucket().open("k"), upload.id, all_of(*parts)));
}

TEST_P(UploadsTest, APartThatWasChangedByHandIsNoPart) {
  const UploadInfo upload = begin();
  ASSERT_TRUE(put(upload, 1, "content"));
  std::ofstream(folder_.path() / ".yard/uploads" / upload.id / "00001") << "another";
  EXPECT_TRUE(uploads_.parts(upload)->empty());
}

TEST_P(UploadsTest, AnAbortedUploadIsGoneWithItsParts) {
  const UploadInfo upload = begin();
  ASSERT_TRUE(put(upload, 1, "content"));
  ASSERT_TRUE(uploads_.abort(upload));
  EXPECT_EQ(folder_.count_in("uploads"), 0u);
  EXPECT_EQ(folder_.count_in("meta"), 0u);
  EXPECT_FALSE(uploads_.find("b", "k", upload.id));
}

TEST_P(UploadsTest, APartThatComesWhileItsUploadEndsLeavesNothing) {
  const UploadInfo upload = begin();
  // As whoever ends it leaves it half way.
  std::filesystem::remove(folder_.path() / ".yard/uploads" / upload.id / "upload");
  EXPECT_EQ(put(upload, 1, "content").error().code, "NoSuchUpload");
  EXPECT_EQ(folder_.count_in("uploads"), 0u);
  EXPECT_EQ(folder_.count_in("meta"), 0u);
}

TEST_P(UploadsTest, WhatWasKilledWhileItBeganOrEndedIsRemovedAtTheStart) {
  const UploadInfo whole = begin();
  const UploadInfo half = begin();
  std::filesystem::remove(folder_.path() / ".yard/uploads" / half.id / "upload");
  const Uploads again(folder_.root());
  EXPECT_EQ(folder_.count_in("uploads"), 1u);
  EXPECT_TRUE(again.find("b", "k", whole.id));
}

TEST_P(UploadsTest, OneCompletesAtATime) {
  const UploadInfo upload = begin();
  ASSERT_TRUE(put(upload, 1, "content"));
  const auto parts = uploads_.parts(upload);
  const auto plan = plan_assembly(upload, *parts, all_of(*parts));
  Bucket bucket = folder_.bucket();
  const auto meanwhile = [&] {
    EXPECT_EQ(uploads_.abort(upload).error().code, "OperationAborted");
    Bucket same = folder_.bucket();
    EXPECT_EQ(uploads_.complete(upload, *plan, same, anything, [] {}).error().code,
              "OperationAborted");
  };
  EXPECT_TRUE(uploads_.complete(upload, *plan, bucket, anything, meanwhile));
  EXPECT_EQ(folder_.content("k"), "content");
}

TEST_P(UploadsTest, AnUploadWhoseCompletionWasRefusedCanBeCompletedLater) {
  const UploadInfo upload = begin();
  ASSERT_TRUE(put(upload, 1, "content"));
  const auto parts = uploads_.parts(upload);
  const auto plan = plan_assembly(upload, *parts, all_of(*parts));
  Bucket bucket = folder_.bucket();
  EXPECT_EQ(uploads_.complete(upload, *plan, bucket, refuse, [] {}).error().http_status, 412);
  EXPECT_EQ(folder_.content("k"), "no such key");
  EXPECT_EQ(folder_.count_in("tmp"), 0u);
  EXPECT_TRUE(complete(upload));
  EXPECT_EQ(folder_.content("k"), "content");
}

std::string part_of(char letter) {
  return std::string(kPartBytesMin, letter);
}

TEST_P(UploadsTest, ThePartsOfOneSizeBecomeTheObjectWithoutBeingCopied) {
  const UploadInfo upload = begin();
  ASSERT_TRUE(put(upload, 3, part_of('c')));
  ASSERT_TRUE(put(upload, 1, part_of('a')));
  ASSERT_TRUE(put(upload, 4, "end"));
  ASSERT_TRUE(put(upload, 2, part_of('b')));
  const ino_t staged = inode_of(staged_path(upload));
  ASSERT_TRUE(complete(upload));
  EXPECT_EQ(folder_.content("k"), part_of('a') + part_of('b') + part_of('c') + "end");
  EXPECT_EQ(inode_of("b/k"), staged);
  EXPECT_EQ(folder_.count_in("uploads"), 0u);
}

TEST_P(UploadsTest, APartThatComesAgainNeverTouchesTheOneThatIsThere) {
  const UploadInfo upload = begin();
  ASSERT_TRUE(put(upload, 1, part_of('a')));
  {
    auto again = uploads_.open_part(upload, 1, kPartBytesMin);
    ASSERT_TRUE(again->write(bytes_of(part_of('x')).first(1000)));
  }  // and breaks off
  ASSERT_TRUE(put(upload, 2, "end"));
  ASSERT_TRUE(complete_first(upload, 2, refuse).error().http_status == 412);
  ASSERT_TRUE(put(upload, 1, part_of('b')));
  const ino_t staged = inode_of(staged_path(upload));
  ASSERT_TRUE(complete(upload));
  EXPECT_EQ(folder_.content("k"), part_of('b') + "end");
  EXPECT_EQ(inode_of("b/k"), staged);
}

TEST_P(UploadsTest, AnAttemptThatBreaksOffLeavesThePlaceToTheNext) {
  const UploadInfo upload = begin();
  {
    auto first = uploads_.open_part(upload, 1, kPartBytesMin);
    ASSERT_TRUE(first->place());
    EXPECT_TRUE(first->reserve(kPartBytesMin));
    EXPECT_TRUE(first->write(bytes_of("some")));
  }
  EXPECT_TRUE(uploads_.parts(upload)->empty());
  auto second = uploads_.open_part(upload, 1, kPartBytesMin);
  ASSERT_TRUE(second->place());
  ASSERT_FALSE(finish(upload, 1, *std::move(second), part_of('a')));  // nothing was written
  ASSERT_TRUE(put(upload, 1, part_of('a')));
  ASSERT_TRUE(complete(upload));
  EXPECT_EQ(folder_.content("k"), part_of('a'));
}

TEST_P(UploadsTest, NothingIsWrittenPastAPlacesEnd) {
  const UploadInfo upload = begin();
  ASSERT_TRUE(put(upload, 2, part_of('b')));
  auto file = uploads_.open_part(upload, 1, kPartBytesMin);
  ASSERT_TRUE(file->place());
  EXPECT_EQ(file->write(bytes_of(part_of('a') + "x")).error().code, "IncompleteBody");
  ASSERT_TRUE(file->write(bytes_of(part_of('a'))));
  EXPECT_EQ(file->write(bytes_of("x")).error().code, "IncompleteBody");
  ASSERT_TRUE(finish(upload, 1, *std::move(file), part_of('a')));
  ASSERT_TRUE(complete(upload));
  EXPECT_EQ(folder_.content("k"), part_of('a') + part_of('b'));
}

TEST_P(UploadsTest, WhoStillWritesAPartWhileTheUploadIsCompletedDoesNotReachTheObject) {
  const UploadInfo upload = begin();
  ASSERT_TRUE(put(upload, 1, part_of('a')));
  auto late = uploads_.open_part(upload, 2, kPartBytesMin);
  ASSERT_TRUE(late->place());
  ASSERT_TRUE(late->write(bytes_of(part_of('x')).first(1000)));
  ASSERT_TRUE(complete(upload));
  ASSERT_TRUE(late->write(bytes_of(part_of('x')).first(kPartBytesMin - 1000)));
  EXPECT_EQ(finish(upload, 2, *std::move(late), part_of('x')).error().code, "NoSuchUpload");
  EXPECT_EQ(folder_.content("k"), part_of('a'));
  EXPECT_EQ(folder_.count_in("uploads"), 0u);
}

TEST_P(UploadsTest, ACompletionThatWasRefusedLosesNoPartBehindIt) {
  const UploadInfo upload = begin();
  for (const auto& [number, letter] : {std::pair(1u, 'a'), std::pair(2u, 'b'), std::pair(3u, 'c')})
    ASSERT_TRUE(put(upload, number, part_of(letter)));
  EXPECT_EQ(complete_first(upload, 1, refuse).error().http_status, 412);
  ASSERT_TRUE(complete(upload));
  EXPECT_EQ(folder_.content("k"), part_of('a') + part_of('b') + part_of('c'));
}

TEST_P(UploadsTest, OfAnUploadWhoseFileBecameTheObjectNothingIsLeftAfterARestart) {
  const UploadInfo upload = begin();
  ASSERT_TRUE(put(upload, 1, part_of('a')));
  // As a gateway leaves it that is killed between the two.
  std::filesystem::rename(folder_.path() / staged_path(upload), folder_.path() / "b/k");
  EXPECT_TRUE(uploads_.parts(upload)->empty());
  const Uploads again(folder_.root());
  EXPECT_EQ(folder_.count_in("uploads"), 0u);
  EXPECT_EQ(folder_.content("k"), part_of('a'));
}

// Parts of a few sizes, in any order, again and again, some of them broken off: the object is what
// the latest of each number make.
TEST_P(UploadsTest, WhateverCameBeforeTheObjectIsTheLatestParts) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t bound) {
    return std::uniform_int_distribution<uint32_t>(0, bound - 1)(random);
  };
  for (int round = 0; round < 4; ++round) {
    const UploadInfo upload = begin();
    std::map<uint32_t, std::string> latest;
    for (int step = 0; step < 8; ++step) {
      const uint32_t number = 1 + below(4);
      const std::string content(kPartBytesMin + (below(4) == 0 ? 1 + below(9) : 0),
                                char('a' + below(26)));
      if (below(4) == 0) {
        auto broken = uploads_.open_part(upload, number, content.size());
        ASSERT_TRUE(broken->write(bytes_of(content).first(below(uint32_t(content.size())))));
        continue;
      }
      ASSERT_TRUE(put(upload, number, content));
      latest[number] = content;
      if (below(4) == 0) {
        EXPECT_EQ(complete_first(upload, 1 + below(4), refuse).error().http_status, 412);
      }
    }
    std::string whole;
    for (const auto& [number, content] : latest) whole += content;
    if (latest.empty()) continue;
    ASSERT_TRUE(complete(upload));
    ASSERT_TRUE(folder_.content("k") == whole) << "round " << round;
  }
}

TEST(UploadedPartsTest, OfAnEarlierBootAreNotTrusted) {
  TempRoot folder;
  Uploads uploads(folder.root());
  const auto upload = uploads.begin({.bucket = "b", .key = "k"});
  TempFile file = *folder.root().make_temp_file();
  // As put_part() leaves it, but for the boot.
  const ObjectMeta meta{.etag = std::string(32, '0'),
                        .user = {{"boot", "an earlier one"}},
                        .checksum = ObjectChecksum{ChecksumAlgorithm::kCrc64Nvme,
                                                   ChecksumType::kFullObject, "AAAAAAAAAAA="}};
  ASSERT_TRUE(folder.root().meta().attach(file.fd(), meta));
  const auto place = folder.path() / ".yard/uploads" / upload->id;
  const UniqueFd into(::open(place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_TRUE(file.rename_to(into.get(), "00001", TempFile::Existing::kReplaced));
  EXPECT_TRUE(uploads.parts(*upload)->empty());
}

}  // namespace
}  // namespace yard::gateway
