// The parts of the module, one per concept.
#pragma once

#include <nanobind/nanobind.h>

namespace yard::python {

void bind_loader(nanobind::module_& module);
void bind_storage(nanobind::module_& module);

}  // namespace yard::python
