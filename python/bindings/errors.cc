#include "errors.h"

namespace yard::python {

nb::str to_str(std::string_view text, const char* errors) {
  PyObject* decoded = PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), errors);
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(decoded);
}

void raise(const Error& error) {
  const nb::object exception =
      nb::module_::import_("trainyard.errors")
          .attr("of_code")(to_str(to_string(error.code)), to_str(error.message));
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  throw nb::python_error();
}

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace yard::python
