// What `yard prep run SPEC.yaml` is to do. docs/prep.md has every key.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace yard::prep {

struct PictureRules {
  std::vector<std::string> formats = {"jpeg", "png", "webp"};
  int64_t side_min = 1;  // of the shorter side, pixels
  int64_t side_max = 65'535;
  int64_t pixels_max = int64_t{1} << 26;
  uint64_t bytes_max = uint64_t{64} << 20;
  double aspect_min = 0;  // of width to height
  double aspect_max = std::numeric_limits<double>::infinity();
  double sharpness_min = 0;
  double entropy_min = 0;
  double alpha_coverage_min = 0;
  std::vector<std::string> licences;  // allowed, whatever their case; empty: all, and none
  bool caption_required = true;
  std::chrono::milliseconds caption_wait{0};  // how long after its picture a sidecar may come
  bool keep_duplicates = false;               // of the same bytes
  int near_duplicate_distance = -1;           // bits; -1: they are kept
};

enum class EncodeFormat { kKeep, kJpeg, kPng };

struct EncodeRules {
  EncodeFormat format = EncodeFormat::kKeep;
  int quality = 95;
  int64_t side_max = 0;  // of the shorter side; 0: as it is
};

struct StepSpec {
  std::string name;
  std::vector<std::string> command;  // of a program, or
  std::string url;                   // of a service: http://..., https://...
  int64_t batch = 8;
  std::chrono::milliseconds timeout{60'000};  // for a batch
};

struct PrepSpec {
  std::string name;
  std::string source;  // URL or path
  std::string output;
  std::string prefix = "shard";
  uint64_t shard_bytes_max = uint64_t{256} << 20;
  int64_t shard_samples_max = 10'000;
  std::string state;                         // folder or s3://; empty: the program's for `name`
  std::string queue_path;                    // empty: in the state's folder
  std::string queue_name;                    // empty: `name`
  std::string queue_sqs;                     // the name of a queue of SQS instead
  bool queue_notifications = false;          // of the source's bucket are sent to it
  std::chrono::seconds visibility{60};       // of a message that a worker has
  int64_t receive_count_max = 5;             // then it is a dead letter
  int64_t workers = 0;                       // threads; 0: one a core
  std::chrono::milliseconds flush{60'000};   // --follow: no sample waits longer for its shard
  std::chrono::milliseconds rescan{10'000};  // --follow: the source is listed this often; 0: never
  bool scan = true;                          // list the source at the start
  std::string end_marker;                    // an object of the source: nothing comes after it
  std::vector<std::string> sidecars = {"json", "txt", "xmp"};  // in the order that counts
  PictureRules pictures;
  EncodeRules encode;
  std::string licence;      // of pictures that tell none
  std::string contributor;  // likewise
  std::vector<StepSpec> steps;
};

// kInvalidArgument, naming `what` and the key: not YAML, an unknown key (the nearest known one
// named), a wrong type, an impossible value.
Result<PrepSpec> parse_prep_spec(const std::string& yaml, std::string_view what);

// Whether a step's text is the URL of a service, not a command.
bool is_step_url(std::string_view text);

// A command as a shell user writes it, cut at white space; quotes keep it together.
// kInvalidArgument: empty, or a quote that does not end.
Result<std::vector<std::string>> split_command(std::string_view text);

}  // namespace yard::prep
