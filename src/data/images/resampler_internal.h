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
  // Rows at a distance of whole cache lines, beginning kRowMisalignment past one.
  class Ring {
   public:
    void resize(int64_t row_count, int64_t row_pixels);
    uint8_t* row(int64_t number) const { return first_ + number % row_count_ * row_bytes_; }
    size_t capacity() const { return bytes_.capacity(); }

   private:
    std::vector<uint8_t> bytes_;
    uint8_t* first_ = nullptr;
    int64_t row_count_ = 0;
    int64_t row_bytes_ = 0;
  };

  Status read_until(RowSource& source, int64_t end);
  std::span<const uint8_t* const> inputs_of(int64_t row);
  void mix_rows_of(int64_t row, float* out);
  void mix_columns_of(const uint8_t* row, uint8_t* out);
  void finish_row(int64_t row);
  void prepare_columns();
  void prepare_rows(int64_t source_pixels);
  void release_large_buffers();

  // Of the current picture.
  Taps columns_;
  Taps rows_;
  bool columns_first_ = false;
  bool is_rounded_between_ = false;
  bool has_few_rows_ = false;  // rows are mixed in units of kFewRowsUnit
  int64_t have_ = 0;           // source rows [rows_.begin, have_) have been read
  int64_t skipped_ = 0;        // pixels at the left of the source's rows that no tap looks at
  int64_t row_pixels_ = 0;     // that mix_rows_of() makes
  size_t column_stride_ = 0;

  Ring ring_;                           // the last rows that rows_ looks at
  Ring fresh_;                          // columns first: rows as the source gives them
  std::vector<uint8_t*> targets_;       // where the next rows go
  std::vector<const uint8_t*> inputs_;  // of one output row
  std::vector<int16_t> few_weights_;    // of one output row
  std::vector<float> column_weights_;   // columns_.weights, each four times
  std::vector<int32_t> column_first_;
  std::vector<float> mixed_;       // one row, rows mixed; columns first: a source's row
  std::vector<uint8_t> rounded_;   // rows first: one row of mixed_ in whole levels
  std::vector<float> finished_;    // one row, columns mixed too
  std::vector<std::byte> turned_;  // one row, to become a column of the output
};

}  // namespace yard::images
