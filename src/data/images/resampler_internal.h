// Resampler: rows of a source in, finished pixels in the caller's memory out. It keeps its buffers.
#pragma once

#include <span>
#include <vector>

#include "images/mix_internal.h"
#include "images/row_source_internal.h"
#include "images/taps_internal.h"

namespace yard::images {

class Resampler {
 public:
  // `source` must be open. `out` is checked against view and options.
  Status render(RowSource& source, Turn turn, const View& view, const RenderOptions& options,
                std::span<std::byte> out);

 private:
  Status read_until(RowSource& source, int64_t end);
  void mix_row(int64_t row);
  void prepare(int64_t row_pixels);
  void release_large_buffers();

  // Of the current picture.
  Taps columns_;
  Taps rows_;
  int64_t have_ = 0;        // source rows [rows_.begin, have_) have been read
  int64_t slot_count_ = 0;  // of the ring
  int64_t slot_bytes_ = 0;
  uint8_t* first_slot_ = nullptr;  // in ring_
  int64_t skipped_ = 0;            // pixels at the left of the source's rows that no tap looks at
  int64_t mixed_pixels_ = 0;

  std::vector<uint8_t> ring_;           // the source's last rows
  std::vector<uint8_t*> targets_;       // where the next rows go
  std::vector<const uint8_t*> inputs_;  // of one output row
  std::vector<int16_t> few_weights_;    // of one output row
  std::vector<float> column_weights_;   // columns_.weights, each four times
  std::vector<int32_t> column_first_;
  size_t column_stride_ = 0;
  std::vector<float> mixed_;       // one row, rows mixed
  std::vector<float> finished_;    // one row, columns mixed too
  std::vector<std::byte> turned_;  // one row, to become a column of the output
};

}  // namespace yard::images
