#!/usr/bin/env python3
"""Tests of check_layers.py on small repositories of one file each. Run by `make lint`."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_layers

CMAKE = """
add_subdirectory_floor(ground)
yard_module(base SYSTEM fmt::fmt)   # yard_module(comment DEPS nothing)
yard_module(store
  DEPS base
  SYSTEM ZLIB::ZLIB)
add_subdirectory_floor(top)
yard_module(model TORCH DEPS base)
yard_program(tool DEPS base store SYSTEM CLI11::CLI11)
yard_python(DEPS base)
yard_torch_python(DEPS model)
"""


def problems_of(files, cmake=CMAKE):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "CMakeLists.txt").write_text(cmake)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_layers.check_tree(root)


class CheckLayersTest(unittest.TestCase):
    def allowed(self, path, *lines):
        self.assertEqual(problems_of({path: "\n".join(lines)}), [])

    def refused(self, path, line, reason):
        problems = problems_of({path: "\n" + line})
        self.assertEqual(len(problems), 1, problems)
        self.assertTrue(problems[0].startswith(f"{path}:2: "), problems[0])
        self.assertIn(reason, problems[0])

    def test_own_headers_and_those_of_deps_are_allowed(self):
        self.allowed("src/ground/store/a.cc", '#include "store/a.h"', '#include "base/x.h"',
                     '#include "store/a_internal.h"', "#include <vector>", "#include <fmt/format.h>")
        self.allowed("apps/tool/main.cc", '#include "store/a.h"')

    def test_a_module_outside_deps_is_refused(self):
        self.refused("src/ground/base/a.cc", '#include "store/a.h"', "not in its DEPS")
        self.refused("src/ground/base/a_test.cc", '#include "store/a.h"', "not in its DEPS")
        self.refused("apps/tool/main.cc", '  #  include "model/a.h"', "not in its DEPS")

    def test_the_python_package_has_deps_too(self):
        self.allowed("python/bindings/a.cc", '#include "base/x.h"', "#include <nanobind/nanobind.h>")
        self.refused("python/bindings/a.cc", '#include "store/a.h"', "not in its DEPS")

    def test_torch_is_for_the_torch_bindings_of_the_package(self):
        self.allowed("python/torch_bindings/a.cc", "#include <torch/csrc/utils/pybind.h>", '#include "model/x.h"')
        self.refused("python/bindings/a.cc", "#include <torch/csrc/utils/pybind.h>", "not TORCH")
        self.refused("python/torch_bindings/a.cc", '#include "store/a.h"', "not in its DEPS")

    def test_headers_are_named_with_their_module(self):
        self.refused("src/ground/base/a.cc", '#include "a.h"', 'write "module/a.h"')
        self.refused("src/ground/base/a.cc", '#include "nothing/a.h"', "is no module")
        self.refused("src/ground/store/a.cc", "#include <base/a.h>", 'write "base/a.h"')

    def test_a_program_may_include_the_file_beside_it(self):
        self.assertEqual(problems_of({"apps/tool/main.cc": '#include "run.h"', "apps/tool/run.h": ""}), [])
        self.refused("apps/tool/main.cc", '#include "absent.h"', "write")

    def test_libtorch_only_where_torch_is_said(self):
        self.allowed("src/top/model/a.cc", "#include <ATen/core/Tensor.h>", "#include <c10/util/Half.h>")
        self.refused("src/ground/base/a.cc", "#include <ATen/core/Tensor.h>", "not TORCH")
        self.refused("apps/tool/main.cc", "#include <torch/serialize.h>", "not TORCH")

    def test_umbrella_headers_are_banned_everywhere(self):
        self.refused("src/top/model/a.cc", "#include <torch/torch.h>", "banned")
        self.refused("src/top/model/a_test.cc", "#include <ATen/ATen.h>", "banned")

    def test_internal_headers_stay_at_home(self):
        self.refused("src/ground/store/a.cc", '#include "base/a_internal.h"', "belongs to base alone")

    def test_fakes_are_for_tests(self):
        self.allowed("src/ground/store/a_test.cc", '#include "base/testing/fake_clock.h"')
        self.allowed("src/ground/store/testing/b.h", '#include "base/testing/fake_clock.h"')
        self.refused("src/ground/store/a.cc", '#include "base/testing/fake_clock.h"', "for tests alone")

    def test_a_folder_without_a_line_is_refused(self):
        self.assertEqual(problems_of({"src/top/store/a.cc": ""}),
                         ["src/top/store: no line in CMakeLists.txt"])
        self.assertEqual(problems_of({"apps/other/a.cc": ""}),
                         ["apps/other: no line in CMakeLists.txt"])

    def test_dependencies_are_declared_before_and_do_not_hide_torch(self):
        later = "yard_module(a DEPS b)\nyard_module(b)"
        self.assertIn("not declared before it", problems_of({}, later)[0])
        hidden = "yard_module(a TORCH)\nyard_module(b DEPS a)"
        self.assertIn("which needs TORCH", problems_of({}, hidden)[0])


if __name__ == "__main__":
    unittest.main()
