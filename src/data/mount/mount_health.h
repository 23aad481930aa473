// Whether mounts answer. Whoever calls into one whose process is stopped or hangs waits for as long
// as that lasts, and cannot always be killed; so it is a child that calls, for a while.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"

namespace yard::mount {

// A mount answers at once, also while its store is away.
constexpr std::chrono::milliseconds kAnswerMax{5'000};

enum class MountHealth {
  kAnswers,
  kDead,    // its process has ended
  kSilent,  // it has not, but is stopped or hangs
};
std::string_view to_string(MountHealth health);

// Of what is mounted on `path`, or of the directory it is. Thread-safe; returns after `patience` at
// most. What is wrong with a path otherwise (not there, not allowed) is an answer, too.
// kExhausted: no process is left for asking.
Result<MountHealth> ask_mount(const std::string& path,
                              std::chrono::milliseconds patience = kAnswerMax);

struct ListedMount {
  std::string path;
  std::string source;  // "s3://bucket/prefix"
  MountHealth health = MountHealth::kAnswers;
};
// The mounts of this program that can be seen from here, in the order in which they were mounted.
// All are asked at once.
Result<std::vector<ListedMount>> list_mounts(std::chrono::milliseconds patience = kAnswerMax);

}  // namespace yard::mount
