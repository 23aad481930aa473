#include <cstring>

#include "images/jpeg_internal.h"
// jerror.h after jpeglib.h: it only adds names.
#include <jerror.h>

#include <fmt/format.h>

namespace yard::images {
namespace {

[[noreturn]] void trap_error(j_common_ptr info) {
  auto* trap = reinterpret_cast<JpegTrap*>(info->err);
  trap->message_code = info->err->msg_code;
  info->err->format_message(info, trap->message);
  std::longjmp(trap->target, 1);
}

// Real cameras and editors cause these; no pixel is lost.
bool is_harmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_JFIF_MAJOR ||
         warning == JWRN_ADOBE_XFORM || warning == JWRN_TOO_MUCH_DATA ||
         warning == JWRN_NOT_SEQUENTIAL;
}

// libjpeg calls damage a warning (level -1) and invents the missing pixels; we do not.
void trap_warning(j_common_ptr info, int level) {
  if (level < 0 && !is_harmless(info->err->msg_code)) trap_error(info);
}

}  // namespace

void init_trap(JpegTrap& trap) {
  jpeg_std_error(&trap.manager);
  trap.manager.error_exit = trap_error;
  trap.manager.emit_message = trap_warning;
}

void raise_jpeg_error(j_common_ptr info, int message_code) {
  info->err->msg_code = message_code;
  trap_error(info);
}

Error error_of(const JpegTrap& trap) {
  switch (trap.message_code) {
    case JERR_BAD_PRECISION:
    case JERR_SOF_UNSUPPORTED:
    case JERR_ARITH_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_IMAGE_TOO_BIG:
      return Error{Code::kInvalidArgument, fmt::format("JPEG: {}", trap.message)};
    case JERR_OUT_OF_MEMORY:
      return Error{Code::kExhausted, fmt::format("JPEG: {}", trap.message)};
    default:
      return Error{Code::kCorrupt, fmt::format("JPEG: {}", trap.message)};
  }
}

}  // namespace yard::images
