// The size of a member that is a picture, found while its content passes by.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "images/picture_size.h"
#include "shards/sample_name.h"

namespace yard::shards {

// Whether a member of that name or extension is one: "7.jpg", "seg.PNG".
inline bool is_picture_member(std::string_view name) {
  const size_t dot = name.rfind('.');
  return images::is_picture_extension(to_lower(name.substr(dot == name.npos ? 0 : dot + 1)));
}

// Not thread-safe.
class MemberPicture {
 public:
  explicit MemberPicture(std::string_view name) {
    if (is_picture_member(name)) finder_.emplace();
  }
  void take(std::span<const std::byte> piece) {
    if (finder_) finder_->take(piece);
  }
  // Once all of it has passed.
  std::optional<images::Size> size() const { return finder_ ? finder_->size() : std::nullopt; }

 private:
  std::optional<images::PictureSizeFinder> finder_;
};

inline std::optional<images::Size> picture_size_of(std::string_view name,
                                                   std::span<const std::byte> content) {
  MemberPicture picture(name);
  picture.take(content);
  return picture.size();
}

}  // namespace yard::shards
