// Arena: the memory of one picture's decoder. What is taken is given back all at once; the next
// picture of that size then finds it all in one block, without a call of malloc().
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace yard::images {

class Arena {
 public:
  // More than this is given back to the system between pictures.
  static constexpr size_t kKeepBytesMax = size_t{32} << 20;
  static constexpr size_t kAlignment = 64;

  // nullptr when the system has no more. Not set to zero.
  void* allocate(size_t size_bytes);
  void reset();

 private:
  struct Free {
    void operator()(std::byte* block) const { std::free(block); }
  };
  struct Block {
    std::unique_ptr<std::byte, Free> bytes;
    size_t size_bytes = 0;
  };
  bool add_block(size_t size_bytes);

  std::vector<Block> blocks_;  // the last one is being filled
  size_t used_bytes_ = 0;      // of it
};

}  // namespace yard::images
