// ObjectVersion: one version of an object, as a listing named it.
#pragma once

#include <cstdint>
#include <string>

namespace yard::mount {

struct ObjectVersion {
  std::string key;
  std::string etag;
  uint64_t size_bytes = 0;
  bool operator==(const ObjectVersion&) const = default;
};

}  // namespace yard::mount
