// A folder for one test, and objects in it without HTTP.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gateway/root.h"
#include "net/encoding.h"

namespace yard::gateway {

class TempRoot {
 public:
  explicit TempRoot(MetaStore::Place place = MetaStore::Place::kAttributeOrFile) : place_(place) {
    std::string path = (std::filesystem::temp_directory_path() / "yard-gateway-XXXXXX").string();
    YARD_CHECK(::mkdtemp(path.data()) != nullptr);
    path_ = path;
    std::filesystem::create_directory(path_ / "b");
    open();
  }
  ~TempRoot() {
    root_.reset();
    std::filesystem::remove_all(path_);
  }

  void open() {
    root_.reset();
    auto opened = Root::open(path_.string(), place_);
    YARD_CHECK(opened.has_value());
    root_ = *std::move(opened);
  }
  void close() { root_.reset(); }
  Root& root() { return *root_; }
  const std::filesystem::path& path() const { return path_; }
  Bucket bucket() { return *root_->bucket("b"); }

  S3Status put(const std::string& key, std::string_view content, ObjectMeta meta = {.etag = "e"}) {
    TempFile file = *root_->make_temp_file();
    YARD_CHECK(file.write(bytes_of(content)).has_value());
    return bucket().store(std::move(file), meta, key,
                          [](const ObjectFile*) -> S3Status { return Ok{}; });
  }
  S3Result<bool> remove(const std::string& key) {
    return bucket().remove(key, [](const ObjectFile*) -> S3Status { return Ok{}; });
  }
  void write_by_hand(const std::string& path, std::string_view content) {
    const auto full = path_ / "b" / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full, std::ios::binary) << content;
  }
  // The object's bytes; "no such key" when there is none.
  std::string content(const std::string& key) {
    const auto object = bucket().open(key);
    if (!object) return "no such key";
    std::string text(object->size_bytes(), '\0');
    YARD_CHECK(::pread(object->fd.get(), text.data(), text.size(), 0) == ssize_t(text.size()));
    return text;
  }
  size_t count_in(const std::string& own_folder) const {
    const std::filesystem::directory_iterator entries(path_ / ".yard" / own_folder);
    return size_t(std::distance(begin(entries), end(entries)));
  }

 private:
  const MetaStore::Place place_;
  std::filesystem::path path_;
  std::unique_ptr<Root> root_;
};

}  // namespace yard::gateway
