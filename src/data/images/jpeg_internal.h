// libjpeg(-turbo)'s errors, for the two files that call it. They arrive by longjmp: run_guarded()
// is the one place that sets the target, and what runs under it owns nothing that needs a
// destructor.
#pragma once

#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE and does not include it

#include <jpeglib.h>

#include "base/result.h"
#include "images/arena_internal.h"

namespace yard::images {

struct JpegTrap {
  jpeg_error_mgr manager;  // first: libjpeg hands back a pointer to it
  std::jmp_buf target;
  char message[JMSG_LENGTH_MAX];
  int message_code;
};

void init_trap(JpegTrap& trap);
// Ends the call under run_guarded() with this message of jerror.h.
[[noreturn]] void raise_jpeg_error(j_common_ptr info, int message_code);
Error error_of(const JpegTrap& trap);

template <typename Body>
bool run_guarded(JpegTrap& trap, Body body) {
  if (setjmp(trap.target) != 0) return false;
  body();
  return true;
}

// libjpeg's memory manager over two arenas. Once install()ed, after jpeg_create_decompress(), it
// serves all of libjpeg's wishes until jpeg_destroy(), and must outlive that.
class JpegMemory {
 public:
  void install(j_common_ptr info);

 private:
  static JpegMemory& of(j_common_ptr info);
  static void* allocate(j_common_ptr info, int pool_id, size_t size_bytes);
  static JSAMPARRAY allocate_samples(j_common_ptr info, int pool_id, JDIMENSION samples_per_row,
                                     JDIMENSION row_count);
  static JBLOCKARRAY allocate_blocks(j_common_ptr info, int pool_id, JDIMENSION blocks_per_row,
                                     JDIMENSION row_count);
  static jvirt_sarray_ptr request_samples(j_common_ptr info, int pool_id, boolean zeroed,
                                          JDIMENSION samples_per_row, JDIMENSION row_count,
                                          JDIMENSION row_count_max);
  static jvirt_barray_ptr request_blocks(j_common_ptr info, int pool_id, boolean zeroed,
                                         JDIMENSION blocks_per_row, JDIMENSION row_count,
                                         JDIMENSION row_count_max);
  static void realize(j_common_ptr info);
  static JSAMPARRAY access_samples(j_common_ptr info, jvirt_sarray_ptr array, JDIMENSION first_row,
                                   JDIMENSION row_count, boolean writable);
  static JBLOCKARRAY access_blocks(j_common_ptr info, jvirt_barray_ptr array, JDIMENSION first_row,
                                   JDIMENSION row_count, boolean writable);
  static void free_pool(j_common_ptr info, int pool_id);
  static void destroy(j_common_ptr info);

  jpeg_memory_mgr manager_ = {};  // first: of() depends on it
  jpeg_memory_mgr* replaced_ = nullptr;
  Arena permanent_;
  Arena image_;
};

}  // namespace yard::images
