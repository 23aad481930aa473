#include <cstring>

#include <jerror.h>
#include "images/jpeg_internal.h"

// What libjpeg keeps a pointer to and gives back to us alone; the name is libjpeg's.
struct jvirt_barray_control {
  jvirt_barray_control* next;
  JBLOCKARRAY rows;
  JDIMENSION blocks_per_row;
  JDIMENSION row_count;
};

namespace yard::images {
namespace {

// libjpeg-turbo's vector code reads and writes whole vectors past a row's samples.
constexpr size_t kRowAlignment = 64;

bool is_image_pool(j_common_ptr info, int pool_id) {
  if (pool_id < 0 || pool_id >= JPOOL_NUMPOOLS) raise_jpeg_error(info, JERR_BAD_POOL_ID);
  return pool_id == JPOOL_IMAGE;
}

}  // namespace

void JpegMemory::install(j_common_ptr info) {
  replaced_ = info->mem;
  manager_ = {.alloc_small = allocate,
              .alloc_large = allocate,
              .alloc_sarray = allocate_samples,
              .alloc_barray = allocate_blocks,
              .request_virt_sarray = request_samples,
              .request_virt_barray = request_blocks,
              .realize_virt_arrays = realize,
              .access_virt_sarray = access_samples,
              .access_virt_barray = access_blocks,
              .free_pool = free_pool,
              .self_destruct = destroy,
              .max_memory_to_use = replaced_->max_memory_to_use,
              .max_alloc_chunk = replaced_->max_alloc_chunk};
  info->mem = &manager_;
}

JpegMemory& JpegMemory::of(j_common_ptr info) {
  return *reinterpret_cast<JpegMemory*>(info->mem);
}

void* JpegMemory::allocate(j_common_ptr info, int pool_id, size_t size_bytes) {
  JpegMemory& memory = of(info);
  Arena& arena = is_image_pool(info, pool_id) ? memory.image_ : memory.permanent_;
  void* bytes = arena.allocate(size_bytes);
  if (bytes == nullptr) raise_jpeg_error(info, JERR_OUT_OF_MEMORY);
  return bytes;
}

JSAMPARRAY JpegMemory::allocate_samples(j_common_ptr info, int pool_id, JDIMENSION samples_per_row,
                                        JDIMENSION row_count) {
  const size_t stride = (samples_per_row / kRowAlignment + 2) * kRowAlignment;
  auto* rows = static_cast<JSAMPARRAY>(allocate(info, pool_id, row_count * sizeof(JSAMPROW)));
  auto* samples = static_cast<JSAMPLE*>(allocate(info, pool_id, row_count * stride));
  for (JDIMENSION i = 0; i < row_count; ++i) rows[i] = samples + i * stride;
  return rows;
}

JBLOCKARRAY JpegMemory::allocate_blocks(j_common_ptr info, int pool_id, JDIMENSION blocks_per_row,
                                        JDIMENSION row_count) {
  auto* rows = static_cast<JBLOCKARRAY>(allocate(info, pool_id, row_count * sizeof(JBLOCKROW)));
  auto* blocks = static_cast<JBLOCKROW>(
      allocate(info, pool_id, size_t{row_count} * blocks_per_row * sizeof(JBLOCK)));
  for (JDIMENSION i = 0; i < row_count; ++i) rows[i] = blocks + size_t{i} * blocks_per_row;
  return rows;
}

// Only colour quantisation in two passes asks for these, which we never do.
jvirt_sarray_ptr JpegMemory::request_samples(j_common_ptr info, int, boolean, JDIMENSION,
                                             JDIMENSION, JDIMENSION) {
  raise_jpeg_error(info, JERR_NOT_COMPILED);
}
JSAMPARRAY JpegMemory::access_samples(j_common_ptr info, jvirt_sarray_ptr, JDIMENSION, JDIMENSION,
                                      boolean) {
  raise_jpeg_error(info, JERR_NOT_COMPILED);
}

// The coefficients of a progressive picture: one array per component, all of it in memory.
jvirt_barray_ptr JpegMemory::request_blocks(j_common_ptr info, int pool_id, boolean zeroed,
                                            JDIMENSION blocks_per_row, JDIMENSION row_count,
                                            JDIMENSION) {
  auto* array =
      static_cast<jvirt_barray_ptr>(allocate(info, pool_id, sizeof(jvirt_barray_control)));
  array->rows = allocate_blocks(info, pool_id, blocks_per_row, row_count);
  array->blocks_per_row = blocks_per_row;
  array->row_count = row_count;
  if (zeroed != 0 && row_count > 0)
    std::memset(array->rows[0], 0, size_t{row_count} * blocks_per_row * sizeof(JBLOCK));
  return array;
}

void JpegMemory::realize(j_common_ptr) {}

JBLOCKARRAY JpegMemory::access_blocks(j_common_ptr info, jvirt_barray_ptr array,
                                      JDIMENSION first_row, JDIMENSION row_count, boolean) {
  if (first_row > array->row_count || row_count > array->row_count - first_row)
    raise_jpeg_error(info, JERR_BAD_VIRTUAL_ACCESS);
  return array->rows + first_row;
}

void JpegMemory::free_pool(j_common_ptr info, int pool_id) {
  JpegMemory& memory = of(info);
  (is_image_pool(info, pool_id) ? memory.image_ : memory.permanent_).reset();
}

// What was replaced goes its own way; the arenas go with this object.
void JpegMemory::destroy(j_common_ptr info) {
  info->mem = of(info).replaced_;
  info->mem->self_destruct(info);
}

}  // namespace yard::images
