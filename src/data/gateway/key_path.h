// Where an object's file lies. Pure functions.
//
// Most keys are paths: "a/b.txt" is the file a/b.txt in the bucket's folder, where people see it.
// Keys that cannot be (a part that is empty, "." or "..", over 255 bytes, not UTF-8) and keys whose
// path is taken ("a/b" beside the object "a") lie in a folder of ours under an escaped path:
//
//   part before a '/'     escaped + "+"          "a//b"  ->  a+/+/b=
//   the last part         escaped + "="          "a/"    ->  a+/=
//   240 bytes of a long   escaped + "~"          and the rest of the part below it
//   escaped: bytes but A-Z a-z 0-9 - . _ are %XX, of one byte or of %XX never cut in two
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace yard::gateway {

inline constexpr size_t kKeyBytesMax = 1024;
inline constexpr size_t kFileNameBytesMax = 255;

// Whether the key can be a path in the bucket's folder, as it is. The names of folders that
// programs beside us keep there (DirectoryStore's staging) are no keys' paths.
bool is_plain_path(std::string_view key);

// The escaped path of any key of 1 to kKeyBytesMax bytes.
std::string odd_path(std::string_view key);
// The escaped path of the folder of all keys that start with `folder`, which ends in '/': "a+/" for
// "a/", without the last '/'. Empty for the root.
std::string odd_folder_path(std::string_view folder);

// What one file or folder name in an escaped path stands for.
struct OddName {
  enum class Kind { kLastPart, kFolder, kGoesOn };
  Kind kind;
  std::string text;  // unescaped
};
// Nothing for a name that we do not write.
std::optional<OddName> parse_odd_name(std::string_view name);

}  // namespace yard::gateway
