#include "tensor/autocast.h"

#include <ATen/autocast_mode.h>

namespace yard::tensor {

Autocast::Autocast(c10::DeviceType device, bool enabled)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      dtype_before_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, at::kBFloat16);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
}

}  // namespace yard::tensor
