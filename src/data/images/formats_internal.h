// Which format some bytes are, and who reads it.
#pragma once

#include <memory>
#include <span>

#include "images/picture_reader.h"
#include "images/row_source_internal.h"

namespace yard::images {

// kInvalidArgument when it is none of ours; the message names the ones that people try.
Result<Format> format_of(std::span<const std::byte> encoded);
std::unique_ptr<RowSource> make_source(Format format, const DecodeOptions& options);

}  // namespace yard::images
