// The messages that name new objects: S3's event records, as bucket notifications send them and as
// a listing writes them here.
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "prep/ledger.h"

namespace yard::prep {

struct ObjectEvent {
  std::string bucket;  // empty: of a folder
  std::string key;
  std::string etag;
  uint64_t size_bytes = 0;
};

// One record of "ObjectCreated:Put", as S3's notifications have it (event version 2.1).
std::string write_object_event(const ObjectEvent& event);
// nullopt: a message that asks for nothing: a test event, or a removal. kInvalidArgument: not such
// a message, or of several records.
Result<std::optional<ObjectEvent>> parse_object_event(std::string_view body);

// As the ledger knows it.
ObjectVersion version_of(const ObjectEvent& event);
// By which a queue knows an object version that it had before.
std::string dedupe_key(const ObjectEvent& event);

// "7" of "cats/7.JPG" is what its sidecars are named by; the extension in lower case.
struct PictureName {
  std::string stem;  // "cats/7"
  std::string extension;
};
std::optional<PictureName> picture_name(std::string_view key);
// A key that WebDataset reads back whole: without the source's prefix, with '_' for dots in its
// last part and for control characters.
std::string sample_key_of(std::string_view stem, std::string_view prefix);

}  // namespace yard::prep
